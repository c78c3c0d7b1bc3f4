"""Say in an OpenAPI document that an operation takes an Idempotency-Key."""

from collections.abc import Mapping
from typing import Any

from pillarbox.idempotency.errors import (
    CommandInProgress,
    IdempotencyError,
    IdempotencyKeyInvalid,
    IdempotencyKeyReused,
    TooManyKeys,
)
from pillarbox.idempotency.key import HEADER, LIMIT
from pillarbox.idempotency.settings import IdempotencySettings

_PROBLEMS: tuple[type[IdempotencyError], ...] = (
    IdempotencyKeyInvalid,
    CommandInProgress,
    TooManyKeys,
)


def described(given: Mapping[str, Any] | None, settings: IdempotencySettings) -> dict[str, Any]:
    """Add the header and its problems to what a route says of itself; once is enough."""
    extra = dict(given or {})
    parameters = list(extra.get("parameters", ()))
    if any(parameter.get("name") == HEADER for parameter in parameters):
        return extra
    responses = {str(kind.status): _response(kind) for kind in _PROBLEMS}
    return extra | {
        "parameters": [*parameters, _parameter(settings)],
        "responses": responses | dict(extra.get("responses", {})),
    }


def _parameter(settings: IdempotencySettings) -> dict[str, Any]:
    hours = settings.ttl.total_seconds() / 3600
    return {
        "name": HEADER,
        "in": "header",
        "required": settings.required,
        "description": "A new key for each command, for example a UUID, quoted or bare. The same "
        f"request with the same key takes effect once and gets the same answer for {hours:g} h; "
        f"another request with it gets {IdempotencyKeyReused.status}.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LIMIT},
    }


def _response(kind: type[IdempotencyError]) -> dict[str, Any]:
    return {"description": kind.title, "content": {"application/problem+json": {}}}
