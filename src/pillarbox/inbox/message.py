"""A message for the inbox, as the caller gives it and as it is stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pillarbox.errors import InvalidEvent
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.payload import check_json_text, encode_json
from pillarbox.event.rules import check_key
from pillarbox.inbox.identity import content_hash, stored_id
from pillarbox.outbox.new_event import JsonText, Key
from pillarbox.outbox.settings import CaptureSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage:
    """A message to claim: the arguments of `claim`, as a value for `claim_many`.

        await inbox.claim_many([InboxMessage(message_id="m-1", event_type="OrderCreated")])

    `payload` is the content by which another message under the same id is noticed: the bytes that
    came, or what they mean, but always the same of both.
    """

    message_id: Key
    event_type: str
    payload: Any = None
    source: str | None = None
    extra_data: Any = None

    @classmethod
    def of(cls, envelope: MessageEnvelope) -> "InboxMessage":
        """Take a message from its envelope; its content is the body as it came.

        A tombstone has an empty one, which is known to be another than any other. Without a
        payload the content is unknown, and passes for every one.
        """
        body = envelope.body()
        return cls(
            message_id=envelope.event_id,
            event_type=envelope.event_type,
            payload=b"" if body is None else body,
            source=envelope.source,
        )


class InboxRow(NamedTuple):
    """A checked message, in the order of its columns; JSON is text already."""

    message_id: str
    event_type: str
    source: str | None
    payload_hash: str | None
    payload: str | None
    extra_data: str | None


def row_of(message: InboxMessage, settings: CaptureSettings, *, keep_payload: bool) -> InboxRow:
    """Check a message and return what is stored of it."""
    extra = message.extra_data
    return InboxRow(
        message_id=stored_id(message.message_id),
        event_type=check_key("event_type", message.event_type),
        source=None if message.source is None else check_key("source", message.source),
        payload_hash=hash_of(message.payload, settings),
        payload=_kept(message.payload, settings) if keep_payload else None,
        extra_data=None if extra is None else _extra_data(extra, settings),
    )


def hash_of(payload: Any, settings: CaptureSettings) -> str | None:
    """Return the hash of a content, encoded as this service encodes."""
    return content_hash(payload, limits=settings.limits, encoders=settings.encoders)


def sorted_once(rows: Iterable[InboxRow]) -> list[InboxRow]:
    """Return each id once, by the bytes of the ids: two batches then never wait for each other."""
    first: dict[str, InboxRow] = {}
    for row in rows:
        first.setdefault(row.message_id, row)
    return sorted(first.values(), key=lambda row: row.message_id.encode())


def _kept(payload: Any, settings: CaptureSettings) -> str | None:
    match payload:
        case None | b"":  # of a tombstone there is nothing to keep
            return None
        case bytes() | bytearray() | memoryview():
            return check_json_text(bytes(payload), limits=settings.limits)
        case JsonText():
            return check_json_text(payload, limits=settings.limits)
    return encode_json(payload, limits=settings.limits, encoders=settings.encoders)


def _extra_data(value: Any, settings: CaptureSettings) -> str:
    try:
        return encode_json(value, limits=settings.limits, encoders=settings.encoders)
    except InvalidEvent as refused:
        field = refused.field.replace("payload", "extra_data", 1)
        raise type(refused)(field, refused.problem, refused.remedy) from None
