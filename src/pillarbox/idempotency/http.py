"""What both modes read from an ASGI request."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from pillarbox.idempotency.errors import RequestTooLarge
from pillarbox.idempotency.key import HEADER, parse_key
from pillarbox.idempotency.scope import fingerprint

HttpScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_NAME: Final = HEADER.lower().encode()


class ClientGone(Exception):
    """The client left before its request was complete; there is nobody to answer."""


def key_of(scope: HttpScope) -> str | None:
    """Return the key of a request; reading is safe to repeat and needs none."""
    if scope["method"] in SAFE_METHODS:
        return None
    return parse_key([value for name, value in scope["headers"] if name == _NAME])


def fingerprint_of(scope: HttpScope, body: bytes) -> str:
    """Tell this request from others that may come under its key."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return fingerprint(path, scope.get("query_string", b""), body)


async def read_body(scope: HttpScope, receive: Receive, limit: int) -> bytes:
    """Read a whole body, and refuse a larger one as soon as it is known to be."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise RequestTooLarge(limit)
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise RequestTooLarge(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


def again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once more, and then whatever comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
