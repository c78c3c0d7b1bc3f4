"""What an event inherits from the place where it is raised: tenant, correlation, trace."""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from pillarbox.errors import InvalidEvent, InvalidHeader, TenantMismatch
from pillarbox.event.rules import check_headers, check_key, check_tenant

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")


class MessageContext(NamedTuple):
    """The correlation and the trace that the next events belong to."""

    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the parts that are set, under their names on the wire."""
        named = {
            "correlationid": self.correlation_id,
            "causationid": self.causation_id,
            "traceparent": self.traceparent,
            "tracestate": self.tracestate,
        }
        return {name: value for name, value in named.items() if value is not None}


_EMPTY = MessageContext()
_message: ContextVar[MessageContext] = ContextVar("pillarbox_message", default=_EMPTY)
_tenant: ContextVar[str | None] = ContextVar("pillarbox_tenant", default=None)
_NOTHING: Mapping[str, str] = {}


def current_headers() -> Mapping[str, str]:
    """Return the headers that an event raised here inherits."""
    message = _message.get()
    return message.headers() if message is not _EMPTY else _NOTHING


def current_tenant() -> str | None:
    """Return the tenant that the running code works for, if any."""
    return _tenant.get()


@contextmanager
def tenant(tenant_id: str) -> Iterator[None]:
    """Work for one tenant inside the block; nesting may not change the tenant."""
    check_tenant(tenant_id)
    outer = _tenant.get()
    if outer is not None and outer != tenant_id:
        raise TenantMismatch("tenant(…)", tenant_id, outer)
    token = _tenant.set(tenant_id)
    try:
        yield
    finally:
        _tenant.reset(token)


@contextmanager
def correlation(correlation_id: str, *, causation_id: str | None = None) -> Iterator[None]:
    """Give the events raised inside the block a correlation id and, if known, their cause."""
    with _inside(_correlated(_message.get(), correlation_id, causation_id)):
        yield


@contextmanager
def trace(traceparent: str, tracestate: str | None = None) -> Iterator[None]:
    """Give the events raised inside the block a W3C trace context."""
    with _inside(_traced(_message.get(), traceparent, tracestate)):
        yield


def caused_by(event_id: str, headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """Have the events raised inside the block belong to what a message belongs to.

    A foreign id or trace that no header can carry is left out.
    """
    message = _message.get()
    known = headers.get("correlationid") or event_id
    if message is _EMPTY and _PLAIN.fullmatch(known) and _PLAIN.fullmatch(event_id):
        message = MessageContext(known, event_id)  # most are: every check would let them pass
    else:
        with suppress(InvalidEvent):
            message = _correlated(message, known, event_id)
    if "traceparent" in headers:
        with suppress(InvalidEvent):
            message = _traced(message, headers["traceparent"], headers.get("tracestate"))
    return _inside(message)


def _correlated(
    message: MessageContext, correlation_id: str, causation_id: str | None
) -> MessageContext:
    check_key("correlation_id", correlation_id)
    if causation_id is not None:
        check_key("causation_id", causation_id)
    trace = message.traceparent, message.tracestate
    return _checked(MessageContext(correlation_id, causation_id, *trace))


def _traced(message: MessageContext, traceparent: str, tracestate: str | None) -> MessageContext:
    if not _TRACEPARENT.fullmatch(traceparent):
        raise InvalidHeader(
            "traceparent",
            "is not a W3C trace context",
            "pass version-traceid-parentid-flags in lower-case hexadecimal",
        )
    cause = message.correlation_id, message.causation_id
    return _checked(MessageContext(*cause, traceparent, tracestate))


def _checked(message: MessageContext) -> MessageContext:
    check_headers({}, own=message.headers())
    return message


@contextmanager
def _inside(message: MessageContext) -> Iterator[None]:
    token = _message.set(message)
    try:
        yield
    finally:
        _message.reset(token)
