"""What an event inherits from the place where it is raised: tenant, correlation, trace."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from pillarbox.errors import InvalidHeader, TenantMismatch
from pillarbox.event.rules import check_headers, check_key, check_tenant

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


@dataclass(frozen=True, slots=True)
class MessageContext:
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
    check_key("correlation_id", correlation_id)
    if causation_id is not None:
        check_key("causation_id", causation_id)
    changed = replace(_message.get(), correlation_id=correlation_id, causation_id=causation_id)
    with _message_context(changed):
        yield


@contextmanager
def trace(traceparent: str, tracestate: str | None = None) -> Iterator[None]:
    """Give the events raised inside the block a W3C trace context."""
    if not _TRACEPARENT.fullmatch(traceparent):
        raise InvalidHeader(
            "traceparent",
            "is not a W3C trace context",
            "pass version-traceid-parentid-flags in lower-case hexadecimal",
        )
    with _message_context(replace(_message.get(), traceparent=traceparent, tracestate=tracestate)):
        yield


@contextmanager
def _message_context(changed: MessageContext) -> Iterator[None]:
    check_headers({}, own=changed.headers())
    token = _message.set(changed)
    try:
        yield
    finally:
        _message.reset(token)
