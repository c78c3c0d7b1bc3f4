"""Answers: what of them is kept, how they are given again, and problems (RFC 9457)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from pillarbox.idempotency.errors import IdempotencyError
from pillarbox.idempotency.settings import IdempotencySettings

Headers = tuple[tuple[str, str], ...]

REPLAYED: Final = ("idempotency-replayed", "true")
NO_STORE: Final = ("cache-control", "no-store")
SERVER_ERROR: Final = 500

# Cookies and credentials belong to one exchange; the rest describes a connection or a moment.
_NOT_KEPT: Final = frozenset({
    "age", "authentication-info", "authorization", "cache-control", "connection", "content-length",
    "date", "expires", "keep-alive", "proxy-authenticate", "proxy-authentication-info",
    "proxy-authorization", "server", "set-cookie", "set-cookie2", "te", "trailer",
    "transfer-encoding", "upgrade", "www-authenticate",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is sent; `body` is None where only the status was kept."""

    status: int
    headers: Headers
    body: bytes | None


def kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that a repetition may be given too."""
    decoded = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return tuple((name, value) for name, value in decoded if name not in _NOT_KEPT)


def to_keep(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes | None,
    settings: IdempotencySettings,
) -> Answer | None:
    """Say what is recorded of an answer; None for one that a repetition should not be given.

    A stream comes without a body. Of it, and of an answer over the limit, the status and the
    headers are kept: the command took effect and must not be executed again.
    """
    if status >= SERVER_ERROR and not settings.keep_server_errors:
        return None
    too_large = body is not None and len(body) > settings.answer_limit
    return Answer(status, kept_headers(headers), None if too_large else body)


def replayed(answer: Answer) -> Answer:
    """Return a recorded answer as a repetition gets it."""
    return Answer(answer.status, (*answer.headers, NO_STORE, REPLAYED), answer.body)


def problem(error: IdempotencyError, settings: IdempotencySettings) -> Answer:
    """Return an error as problem details, with a link to its page if the docs are published."""
    page = f"errors/{error.code}.html"
    found = {
        "type": f"{settings.docs_url.rstrip('/')}/{page}"
        if settings.docs_url
        else f"urn:pillarbox:error:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": str(error),
    }
    headers = [("content-type", "application/problem+json"), NO_STORE]
    retry_after: int | None = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers.append(("retry-after", str(retry_after)))
    if settings.docs_url:
        headers.append(("link", f'<{found["type"]}>; rel="help"'))
    return Answer(error.status, tuple(headers), orjson.dumps(found))
