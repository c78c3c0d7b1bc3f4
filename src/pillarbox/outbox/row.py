"""From what the caller says to a row of the outbox: pure, and refused here if at all."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from pillarbox.errors import InvalidEvent, InvalidEventId, TopicUnknown
from pillarbox.event.aggregate import RaisedEvent, next_raise_number
from pillarbox.event.context import current_headers
from pillarbox.event.domain import class_setting, event_type_of, schema_version_of
from pillarbox.event.envelope import JSON_CONTENT
from pillarbox.event.payload import byte_length, check_json_text, encode_json, event_fields
from pillarbox.event.rules import (
    check_headers,
    check_key,
    check_routing_key,
    check_size,
    check_time,
    check_topic,
)
from pillarbox.event.shard import place_of
from pillarbox.outbox.new_event import UNSET, JsonText, Key, NewEvent
from pillarbox.outbox.routing import Origin
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import DEFAULT_TENANT

# Room for what every message carries beside its own headers: id, type, tenant, versions, times.
ENVELOPE_BYTES: Final = 1024


class EventRow(NamedTuple):
    """One row to insert: the stored columns in order, then what only the insert needs."""

    occurred_at: datetime
    deliver_at: datetime | None
    expires_at: datetime | None
    aggregate_version: int | None
    event_number: int | None
    shard_hash: int
    schema_version: int
    id: UUID
    tenant_id: str
    event_type: str
    topic: str
    key: str
    aggregate_type: str | None
    aggregate_id: str | None
    routing_key: str | None
    schema_id: str | None
    event_metadata: str
    content_type: str
    payload: str | None
    payload_bytes: bytes | None
    raise_number: int
    key_lock: int | None
    """The advisory lock that serialises the writers of this key; None for an unordered event."""
    given_id: bool


COLUMNS: Final = EventRow._fields[:-3]


class Raiser(NamedTuple):
    """The aggregate behind a raised event, as its row names it."""

    aggregate_type: str
    aggregate_id: str
    aggregate_version: int | None


class _Content(NamedTuple):
    text: str | None
    data: bytes | None = None
    content_type: str = JSON_CONTENT

    def size(self) -> int:
        return len(self.data or b"") if self.text is None else byte_length(self.text)


def row_of(new: NewEvent, settings: CaptureSettings, tenant_id: str = DEFAULT_TENANT) -> EventRow:
    """Check a new event whole and return its row, or raise `InvalidEvent`."""
    kind = object if new.event is None else type(new.event)
    aggregate_type = _first(new.aggregate_type, class_setting(kind, "aggregate_type"))
    topic = _named_topic(new.topic, kind, settings)
    event_type = check_key("event_type", _event_type(new, kind))
    if topic is None:
        topic = _routed(settings, tenant_id, aggregate_type, event_type)
    event_id = settings.new_id() if new.event_id is None else _given_id(new.event_id)
    aggregate_id = None if new.aggregate_id is None else key_text("aggregate_id", new.aggregate_id)
    key = aggregate_id if new.key is None else key_text("key", new.key)
    place = place_of(tenant_id, key if key is not None else str(event_id))
    content = _content(new, settings)
    return EventRow(
        occurred_at=_time("occurred_at", new.occurred_at) or settings.clock.now(),
        deliver_at=_time("deliver_at", new.deliver_at),
        expires_at=_time("expires_at", new.expires_at),
        aggregate_version=_count("aggregate_version", new.aggregate_version),
        event_number=_count("event_number", new.event_number),
        shard_hash=place.shard_hash,
        schema_version=_schema_version(new.schema_version, kind),
        id=event_id,
        tenant_id=tenant_id,
        event_type=event_type,
        topic=topic,
        key=key if key is not None else str(event_id),
        aggregate_type=_optional("aggregate_type", aggregate_type),
        aggregate_id=aggregate_id,
        routing_key=_routing_key(new.routing_key, settings),
        schema_id=_optional("schema_id", _first(new.schema_id, class_setting(kind, "schema_id"))),
        event_metadata=_metadata(new.headers, current_headers(), content.size(), settings),
        content_type=content.content_type,
        payload=content.text,
        payload_bytes=content.data,
        raise_number=next_raise_number(),
        key_lock=None if key is None else place.lock,
        given_id=new.event_id is not None,
    )


def row_of_raised(
    raised: RaisedEvent, raiser: Raiser, number: int, settings: CaptureSettings, tenant_id: str
) -> EventRow:
    """Return the row of an event that an aggregate raised, with its place in the aggregate.

    What was made or checked when it was raised, and the raiser's type and id, are taken as they are.
    """
    kind, option = type(raised.event), raised.options.get
    topic = _named_topic(option("topic"), kind, settings)
    event_type = check_key("event_type", event_type_of(kind))
    if topic is None:
        routed_as = _first(class_setting(kind, "aggregate_type"), raiser.aggregate_type)
        topic = _routed(settings, tenant_id, routed_as, event_type)
    named_key = option("key")
    key = raiser.aggregate_id if named_key is None else key_text("key", named_key)
    place = place_of(tenant_id, key)
    return EventRow(
        occurred_at=raised.occurred_at,
        deliver_at=_time("deliver_at", option("deliver_at")),
        expires_at=_time("expires_at", option("expires_at")),
        aggregate_version=_count("aggregate_version", raiser.aggregate_version),
        event_number=number,
        shard_hash=place.shard_hash,
        schema_version=_schema_version(None, kind),
        id=raised.event_id,
        tenant_id=tenant_id,
        event_type=event_type,
        topic=topic,
        key=key,
        aggregate_type=raiser.aggregate_type,
        aggregate_id=raiser.aggregate_id,
        routing_key=_routing_key(option("routing_key"), settings),
        schema_id=_optional("schema_id", class_setting(kind, "schema_id")),
        event_metadata=_metadata(
            option("headers"), raised.inherited, byte_length(raised.payload), settings
        ),
        content_type=JSON_CONTENT,
        payload=raised.payload,
        payload_bytes=None,
        raise_number=raised.number,
        key_lock=place.lock,
        given_id=False,
    )


def key_text(field: str, value: Key) -> str:
    """Return a key as the text that column, message and tests show."""
    if isinstance(value, str):
        return check_key(field, value)
    if isinstance(value, bool) or not isinstance(value, (int, UUID)):
        raise InvalidEvent(
            field, f"is of type {type(value).__name__}", "pass a text, a whole number or a UUID"
        )
    return str(value)


def _event_type(new: NewEvent, kind: type) -> str:
    if isinstance(new.event, type):
        raise InvalidEvent("event", f"is the class {new.event.__name__}", "pass an instance of it")
    named = _first(new.event_type, new.topic if new.event is None else event_type_of(kind))
    if named is None:
        raise InvalidEvent("event", "is missing", "pass an event object, or topic=… and payload=…")
    return named


def _named_topic(given: str | None, kind: type, settings: CaptureSettings) -> str | None:
    topic = _first(given, class_setting(kind, "topic"))
    if topic is not None:
        check_topic(topic, settings.rules)
    return topic


def _routed(
    settings: CaptureSettings, tenant_id: str, aggregate_type: str | None, event_type: str
) -> str:
    origin = Origin(settings.service, tenant_id, aggregate_type, event_type)
    topic = settings.routing.topic(origin)
    if topic is None:
        raise TopicUnknown(
            "topic",
            f"of {event_type} is not known",
            "set aggregate_type on its class, or pass aggregate_type=… or topic=…",
        )
    return check_topic(topic, settings.rules)


def _given_id(value: UUID | str) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidEventId("event_id", "is not a UUID", "pass a UUID, or leave it out") from None


def _content(new: NewEvent, settings: CaptureSettings) -> _Content:
    given = new.payload is not UNSET
    if new.tombstone:
        if given or new.event is not None:
            raise InvalidEvent("tombstone", "comes with a payload", "pass one or the other")
        return _Content(None, None, new.content_type or JSON_CONTENT)
    if given and new.event is not None:
        raise InvalidEvent("payload", "comes with an event object", "pass one or the other")
    if not given and new.event is None:
        raise InvalidEvent(
            "payload", "is missing", "pass payload=…, or tombstone=True to send a tombstone"
        )
    value = new.payload if given else event_fields(new.event)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_content(bytes(value), new.content_type)
    if new.content_type not in (None, JSON_CONTENT):
        raise InvalidEvent(
            "content_type", "is not JSON but the payload is no bytes", "pass the payload as bytes"
        )
    if isinstance(value, JsonText):
        return _Content(check_json_text(value, limits=settings.limits))
    text = encode_json(value, limits=settings.limits, encoders=settings.encoders)
    return _Content(text)


def _bytes_content(data: bytes, content_type: str | None) -> _Content:
    if content_type is None or content_type == JSON_CONTENT:
        raise InvalidEvent(
            "content_type",
            "is missing for a payload of bytes",
            "name it, as in content_type='application/avro'; pass JSON as JsonText(…)",
        )
    return _Content(None, data, check_key("content_type", content_type))


def _metadata(
    headers: Mapping[str, str] | None,
    inherited: Mapping[str, str],
    payload_bytes: int,
    settings: CaptureSettings,
) -> str:
    """Check headers and size together, and return the headers as stored."""
    if not headers and not inherited:
        check_size(payload_bytes, ENVELOPE_BYTES, settings.rules)
        return "{}"
    own = check_headers(headers, settings.rules) if headers else {}
    text = encode_json({**own, **inherited})
    check_size(payload_bytes, ENVELOPE_BYTES + len(text), settings.rules)
    return text


def _first(given: str | None, otherwise: str | None) -> str | None:
    return otherwise if given is None else given


def _schema_version(given: int | None, kind: type) -> int:
    version = schema_version_of(kind) if given is None else given
    return _count("schema_version", version) or 0


def _routing_key(value: str | None, settings: CaptureSettings) -> str | None:
    return None if value is None else check_routing_key(value, settings.rules)


def _optional(field: str, value: str | None) -> str | None:
    return None if value is None else check_key(field, value)


def _time(field: str, value: datetime | None) -> datetime | None:
    return None if value is None else check_time(field, value)


def _count(field: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value < 1 << 31):
        raise InvalidEvent(
            field, "is not a whole number from 0 to 2147483647", "pass such a number"
        )
    return value
