"""From a row of a claim to an event with its envelope. This runs once for each event."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import NO_HEADERS
from pillarbox.projector.store import OutboxEvent

# Half the cost of calling the classes, which would only pass their arguments on by position.
_new = tuple.__new__


def event_of(row: Sequence[Any], source: str, *, ordered: bool) -> OutboxEvent:
    """Make the event; the payload goes through as it is stored, without being decoded.

    Without order each event has a lane to itself, whatever its key.
    """
    (
        seq, shard, tenant_id, _, key, topic, event_id, attempts, blocked, blocker, expires_in, age,
        event_type, aggregate_type, aggregate_id, aggregate_version, event_number, routing_key,
        schema_id, schema_version, occurred_at, metadata, content_type, payload, payload_bytes, _,
        scheduled,
    ) = row  # fmt: skip
    headers = NO_HEADERS if metadata == b"{}" else _headers(metadata)
    envelope = _new(
        MessageEnvelope,
        (
            event_id,
            event_type,
            None,
            payload_bytes if payload is None else payload,
            content_type,
            topic,
            None if key == event_id else key,
            tenant_id,
            source,
            occurred_at,
            aggregate_type,
            aggregate_id,
            aggregate_version,
            event_number,
            schema_id,
            schema_version,
            routing_key,
            headers or NO_HEADERS,
        ),
    )
    return _new(
        OutboxEvent,
        (
            seq,
            shard,
            (tenant_id, key if ordered else event_id),
            topic,
            attempts,
            ordered and blocked is True,
            blocker is True,
            expires_in,
            age,
            envelope,
            headers is None or occurred_at is None,
            scheduled,
        ),
    )


def _headers(metadata: bytes) -> Mapping[str, str] | None:
    """Return the headers; None for a row of other hands whose headers are no text by name."""
    try:
        headers: dict[str, str] = orjson.loads(metadata)
    except ValueError:
        return None
    if type(headers) is dict and all(type(text) is str for text in headers.values()):
        return headers
    return None
