"""Errors as problem details (RFC 9457): ours, the framework's, and those that nobody expected."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.orm.exc import StaleDataError
from starlette.exceptions import HTTPException

from pillarbox.errors import (
    BusUnreachable,
    DatabaseUnreachable,
    InvalidKey,
    PayloadNotUnicode,
    PayloadTooLarge,
    PillarboxError,
    TenantMismatch,
    TenantRequired,
)
from pillarbox.idempotency.errors import IdempotencyError
from pillarbox.uow.outcome import CommitUnknown

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_SERVER_ERROR: Final = 500
_RETRY_AFTER: Final = {"Retry-After": "1"}

# What a client can do something about; everything else is the server's own fault.
_STATUS: Final[Mapping[type[PillarboxError], tuple[int, str]]] = {
    TenantRequired: (400, "The tenant is missing"),
    TenantMismatch: (403, "The tenant is not the caller's"),
    PayloadTooLarge: (413, "The content is too large"),
    PayloadNotUnicode: (422, "The content has characters that cannot be stored"),
    DatabaseUnreachable: (503, "The service is not available"),
    BusUnreachable: (503, "The service is not available"),
    CommitUnknown: (503, "It is not known whether the request took effect"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What a client is told: a status, a title, and, where it helps, a detail and more members."""

    status: int
    title: str
    code: str | None = None
    detail: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)

    def response(self, request: Request, docs_url: str | None) -> Response:
        """Return it as an answer; `type` is the page of the error, where there is one."""
        content = {
            "type": _type(self.code, docs_url),
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": request.url.path,
            **self.members,
        }
        told = {name: value for name, value in content.items() if value is not None}
        return JSONResponse(told, self.status, dict(self.headers), MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """Say what an error is to a client; of a fault of the server's own, only that there is one."""
    match error:
        case RequestValidationError():
            return Problem(
                422, "The request is not valid", members={"errors": _errors(error.errors())}
            )
        case HTTPException():
            return _of_http(error)
        case StaleDataError():
            return Problem(
                409,
                "The resource was changed meanwhile",
                detail="somebody else changed it first; read it again and repeat the request",
            )
        case IdempotencyError():
            retry = getattr(error, "retry_after", None)
            headers = {} if retry is None else {"Retry-After": str(retry)}
            return Problem(error.status, error.title, error.code, str(error), headers)
        case PillarboxError():
            return _of_pillarbox(error)
        case _:
            return Problem(_SERVER_ERROR, HTTPStatus(_SERVER_ERROR).phrase)


def add_problem_handlers(app: FastAPI, *, docs_url: str | None = None) -> None:
    """Answer errors with problem details.

        app = FastAPI(lifespan=box.lifespan())
        add_problem_handlers(app)

    Call it before routes are added, so that the OpenAPI document shows them. `docs_url` is where
    your copy of these docs is published; the `type` of our errors is then the link to their page.
    """

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.status >= _SERVER_ERROR and isinstance(error, PillarboxError):
            log.error("request_failed", exc_info=error, extra={"code": error.code})
        return problem.response(request, docs_url)

    for kind in (PillarboxError, StaleDataError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    app.router.responses.setdefault(422, _described("The request is not valid"))


def _of_pillarbox(error: PillarboxError) -> Problem:
    if isinstance(error, InvalidKey) and error.field == "tenant_id":
        # The tenant comes with the request; the keys of events are the server's own affair.
        return Problem(400, "The tenant is not valid", error.code, str(error))
    known = next((kind for kind in type(error).__mro__ if kind in _STATUS), None)
    if known is None:
        return Problem(_SERVER_ERROR, HTTPStatus(_SERVER_ERROR).phrase, error.code)
    status, title = _STATUS[known]
    if status >= _SERVER_ERROR:
        return Problem(status, title, error.code, headers=_RETRY_AFTER)
    return Problem(status, title, error.code, str(error))


def _of_http(error: HTTPException) -> Problem:
    known = error.status_code in set(HTTPStatus)
    title = HTTPStatus(error.status_code).phrase if known else "Error"
    detail: Any = error.detail  # a text by its annotation, and whatever the application gave
    headers = error.headers or {}
    if isinstance(detail, str):
        told = None if detail == title else detail
        return Problem(error.status_code, title, detail=told, headers=headers)
    members = detail if isinstance(detail, dict) else {"errors": detail}
    return Problem(error.status_code, title, headers=headers, members=members)


def _errors(found: Any) -> list[dict[str, str]]:
    """Name each field and what is wrong with it, without what was sent."""
    return [
        {"in": str(loc[0]), "pointer": "".join(f"/{part}" for part in loc[1:]), "detail": message}
        for loc, message in ((error["loc"], error["msg"]) for error in found)
    ]


def _type(code: str | None, docs_url: str | None) -> str:
    if code is None:
        return "about:blank"
    if docs_url is None:
        return f"urn:pillarbox:error:{code}"
    return f"{docs_url.rstrip('/')}/errors/{code}.html"


def _described(title: str) -> dict[str, Any]:
    members = {"type": "string", "title": "string", "status": "integer", "instance": "string"}
    properties: dict[str, Any] = {name: {"type": kind} for name, kind in members.items()}
    properties["errors"] = {"type": "array", "items": {"type": "object"}}
    schema = {"type": "object", "properties": properties}
    return {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}
