"""The envelope: one event as it travels, with its identity and its headers."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pillarbox.event.payload import encode_json

JSON_CONTENT = "application/json"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class MessageEnvelope(NamedTuple):
    """One event on its way, with `event_id`, `event_type`, `payload` and the rest.

        envelope = MessageEnvelope(event_id="…", event_type="OrderCreated", payload={"total": "9.90"})

    `payload` is the content, `data` the bytes on the wire. A projector passes stored bytes on as
    `data` and leaves `payload` alone; a consumer has both. One with neither is a tombstone. `key` is
    None for an event without an order. A named tuple, because a projector makes one for each event
    and a frozen dataclass costs four times as much.
    """

    event_id: str
    event_type: str
    payload: Any = None
    data: bytes | None = None
    content_type: str = JSON_CONTENT
    topic: str | None = None
    key: str | None = None
    tenant_id: str = "default"
    source: str | None = None
    occurred_at: datetime | None = None
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    aggregate_version: int | None = None
    event_number: int | None = None
    schema_id: str | None = None
    schema_version: int = 1
    routing_key: str | None = None
    headers: Mapping[str, str] = _NO_HEADERS

    def body(self) -> bytes | None:
        """Return the bytes to send, or None for a tombstone."""
        if self.data is not None or self.payload is None:
            return self.data
        return (
            self.payload if isinstance(self.payload, bytes) else encode_json(self.payload).encode()
        )
