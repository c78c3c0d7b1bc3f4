"""The strong mode for FastAPI: a route class.

The route's dependencies run on every request, so that whoever may no longer send a command gets no
recorded answer either. Between them and the endpoint stands the claim. The answer is rendered,
recorded and committed with the effects before its first byte is sent.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, assert_never

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from starlette.exceptions import HTTPException

from pillarbox.errors import InvalidConfig
from pillarbox.idempotency.answer import (
    NO_STORE,
    SERVER_ERROR,
    Answer,
    problem,
    replayed,
    to_keep,
)
from pillarbox.idempotency.command import ClaimLost, Command, opened
from pillarbox.idempotency.decision import Decision, Execute, Refuse, Replay
from pillarbox.idempotency.errors import (
    CommandInProgress,
    CommandNotCommitted,
    IdempotencyError,
    IdempotencyKeyMissing,
    PrincipalMissing,
)
from pillarbox.idempotency.http import (
    SAFE_METHODS,
    ClientGone,
    again,
    fingerprint_of,
    key_of,
    read_body,
)
from pillarbox.idempotency.observer import Observer, outcome_of
from pillarbox.idempotency.openapi import described
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.store import CommandStore
from pillarbox.tenancy import DEFAULT_TENANT, Tenancy
from pillarbox.uow.joining import joined_transaction
from pillarbox.uow.running import RunningTransaction

log = logging.getLogger(__name__)

Endpoint = Callable[..., Any]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Principal = Callable[[Request], object | Awaitable[object]]

_GUARDED: Final = "_pillarbox_guarded"


@dataclass(frozen=True, slots=True)
class RouteParts:
    """What the routes of one class share; `bind` is asked at each request."""

    bind: Callable[[], Engine | Connection]
    store: CommandStore
    tenancy: Tenancy
    principal: Principal
    observer: Observer = field(default_factory=Observer)

    @property
    def settings(self) -> IdempotencySettings:
        """The policy."""
        return self.store.settings

    def refused(self, error: IdempotencyError) -> Response:
        """Tell of a request that is answered with a problem, and return it."""
        self.observer.ended(outcome_of(error))
        return response_of(problem(error, self.settings))


@dataclass(frozen=True, slots=True)
class _Admission:
    """A request on its way to its endpoint."""

    parts: RouteParts
    command: Command
    request: Request
    template: str

    async def claim(self) -> Response | None:
        """Claim the key; return what is answered in place of the endpoint, if anything is."""
        named = self.parts.principal(self.request)
        principal = await named if isinstance(named, Awaitable) else named
        if principal is None or not str(principal):
            raise PrincipalMissing
        tenant_id = self.parts.tenancy.resolve(DEFAULT_TENANT, "a command with Idempotency-Key")
        operation = f"{self.request.method} {self.template}"
        return self.refusal(await self.command.claim(tenant_id, str(principal), operation))

    def refusal(self, decision: Decision) -> Response | None:
        """Return what is answered in place of the endpoint."""
        match decision:
            case Execute():
                return None
            case Replay(answer):
                self.parts.observer.ended("replayed")
                return response_of(replayed(answer))
            case Refuse(error):
                return self.parts.refused(error)
            case _:
                assert_never(decision)

    def broken_off(self, error: Exception, *, is_answered: bool) -> Response:
        """Say what is sent when the transaction did not come to its end; nothing is recorded."""
        if isinstance(error, ClaimLost):
            return self.overtaken()
        if not self.command.executes:
            raise error  # what became of the command before is told already, if anything did
        if isinstance(error, DBAPIError | PendingRollbackError | OSError) and is_answered:
            log.error("command_not_committed", exc_info=error)
            return self.parts.refused(CommandNotCommitted())
        self.parts.observer.ended("undone")
        raise error

    def overtaken(self) -> Response:
        """Return the answer of whoever claimed the key while the handler had rolled back."""
        found = None if self.command.decision is None else self.refusal(self.command.decision)
        retry_after = self.parts.settings.retry_after_seconds
        return found or self.parts.refused(CommandInProgress(retry_after))


_admission: ContextVar[_Admission | None] = ContextVar("pillarbox_admission", default=None)


def idempotent_route(parts: RouteParts) -> type[APIRoute]:
    """Make a route class for `APIRouter(route_class=…)`."""

    class IdempotentRoute(APIRoute):
        """A route whose commands take effect once for each Idempotency-Key."""

        def __init__(self, path: str, endpoint: Endpoint, **options: Any) -> None:
            methods = {method.upper() for method in options.get("methods") or ("GET",)}
            if not methods <= SAFE_METHODS:
                endpoint = _guarded(endpoint, path)
                options["openapi_extra"] = described(options.get("openapi_extra"), parts.settings)
            super().__init__(path, endpoint, **options)

        def get_route_handler(self) -> Handler:
            original = super().get_route_handler()

            async def handle(request: Request) -> Response:
                return await _serve(parts, original, request, self.path_format)

            return handle

    return IdempotentRoute


def _guarded(endpoint: Endpoint, path: str) -> Endpoint:
    """Put the claim between an endpoint and its dependencies, which have run by then."""
    if hasattr(endpoint, _GUARDED):
        return endpoint  # an included router makes its routes anew
    if inspect.isasyncgenfunction(endpoint) or inspect.isgeneratorfunction(endpoint):
        raise InvalidConfig(
            f"route {path}", "streams its answer", "use a plain APIRouter for it: see HTTP commands"
        )
    is_async = inspect.iscoroutinefunction(endpoint)

    @wraps(endpoint)
    async def guard(**values: Any) -> Any:
        admission = _admission.get()
        refusal = None if admission is None else await admission.claim()
        if refusal is not None:
            return refusal
        if is_async:
            return await endpoint(**values)
        return await run_in_threadpool(endpoint, **values)

    setattr(guard, _GUARDED, True)
    return guard


async def _serve(parts: RouteParts, original: Handler, request: Request, path: str) -> Response:
    try:
        key = key_of(request.scope)
        if key is None:
            return await _serve_without_key(parts, original, request)
        body = await read_body(request.scope, request.receive, parts.settings.request_limit)
    except IdempotencyError as error:
        return parts.refused(error)
    except ClientGone:
        return Response(status_code=400)
    request = Request(request.scope, again(body, request.receive))
    seen = fingerprint_of(request.scope, body)
    async with opened(parts.store, parts.bind(), parts.tenancy, key, seen) as command:
        admission = _Admission(parts, command, request, _template(request, path))
        token = _admission.set(admission)
        try:
            return await _run(admission, original)
        finally:
            _admission.reset(token)


async def _serve_without_key(parts: RouteParts, original: Handler, request: Request) -> Response:
    if parts.settings.required and request.method not in SAFE_METHODS:
        raise IdempotencyKeyMissing
    token = _admission.set(None)  # a request that was sent from inside another one's handler
    try:
        return await original(request)
    finally:
        _admission.reset(token)


async def _run(admission: _Admission, original: Handler) -> Response:
    """Run a command; record what it answers or raises, commit, and only then hand it over."""
    command = admission.command
    response: Response | None = None
    raised: Exception | None = None
    try:
        # The answer's row is written next, and would fail in an aborted transaction.
        async with joined_transaction(
            command.owner, asks_at_end=False, takes_event=True
        ) as running:
            try:
                response = await original(admission.request)
            except Exception as error:  # noqa: BLE001 - it is raised again when the rest is settled
                raised = error
                response = await _rendered(admission.request, error) if command.executes else None
            if raised is None and command.executes and not _is_failure(response):
                running.refuse_open_blocks()
    except Exception as error:  # noqa: BLE001 - it is raised again if it is none of ours
        return admission.broken_off(error, is_answered=response is not None)
    if isinstance(raised, ClaimLost):
        return admission.overtaken()
    failed = await _settle(admission, response, running)
    if failed is not None:
        return admission.parts.refused(failed)
    if raised is not None or response is None:
        raise raised or RuntimeError("a route without an answer")
    response.headers.setdefault(*NO_STORE)
    return response


def _is_failure(response: Response | None) -> bool:
    return response is None or response.status_code >= SERVER_ERROR


async def _settle(
    admission: _Admission, response: Response | None, running: RunningTransaction
) -> IdempotencyError | None:
    """Commit what is to stay, with the answer; say what went wrong."""
    command, parts = admission.command, admission.parts
    if not command.executes:
        if command.decision is None:
            parts.observer.ended("refused")
        return await command.commit(None, running.postponed) if running.armed else None
    kept = _kept(response, parts.settings)
    failed = None if kept is None else await command.commit(kept, running.postponed)
    if failed is None:
        parts.observer.ended("undone" if kept is None else "executed")
    return failed


def _kept(response: Response | None, settings: IdempotencySettings) -> Answer | None:
    if response is None:
        return None
    body = getattr(response, "body", None)  # a stream has none
    content = None if body is None else bytes(body)
    return to_keep(response.status_code, response.raw_headers, content, settings)


async def _rendered(request: Request, error: Exception) -> Response | None:
    """Return what the application answers when this is raised; it is raised again afterwards."""
    by_class, by_status = request.scope.get("starlette.exception_handlers", ({}, {}))
    kinds = [kind for kind in type(error).__mro__ if kind in by_class]
    handler = by_class[kinds[0]] if kinds else None
    if isinstance(error, HTTPException):
        handler = by_status.get(error.status_code, handler)
    if handler is None:
        return None
    if inspect.iscoroutinefunction(handler):
        found = await handler(request, error)
    else:
        found = await run_in_threadpool(handler, request, error)
    return found if isinstance(found, Response) else None


def _template(request: Request, path: str) -> str:
    """Return the route's whole path; FastAPI keeps the prefix of an included router apart."""
    context = request.scope.get("fastapi", {}).get("effective_route_context")
    whole: str = getattr(context, "path_format", "") or path
    return whole


def response_of(answer: Answer) -> Response:
    """Return an answer in the framework's form."""
    response = Response(content=answer.body, status_code=answer.status)
    response.raw_headers.extend(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers
    )
    return response
