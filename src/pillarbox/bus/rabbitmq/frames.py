"""Messages as AMQP 0-9-1 frames, as pure functions.

Written by hand, because the client's codec takes almost four times as long.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from pillarbox.bus.outcome import Refused
from pillarbox.bus.rabbitmq.outcomes import invalid
from pillarbox.event.cloudevents import (
    CONTENT_TYPE,
    STRUCTURED_CONTENT,
    ContentMode,
    Headers,
    binary_headers,
    is_structured,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope

_SHORT: Final = 255
FRAME_OVERHEAD: Final = 8
_FRAME_END: Final = b"\xce"
_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC: Final = 60
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY: Final = b"\x01"
_PERSISTENT: Final = b"\x02"
_TEXT: Final = b"S"
_REMEMBERED: Final = 1_024
_HAS_CONTENT_TYPE, _HAS_HEADERS, _HAS_MODE = 1 << 15, 1 << 13, 1 << 12
_HAS_ID, _HAS_TIME, _HAS_TYPE, _HAS_APP = 1 << 7, 1 << 6, 1 << 5, 1 << 3
# A copy would go to whatever they name, and a text in them ends the channel.
_COPIES: Final = frozenset({"CC", "BCC"})

_frame: Final = Struct(">BHI").pack
_length: Final = Struct(">I").pack
_moment: Final = Struct(">Q").pack
_content: Final = Struct(">HHQH").pack
_headers: Final = binary_headers("cloudEvents_")


class WireMessage(NamedTuple):
    """A message with its properties in bytes, and the names by which RabbitMQ may return it."""

    topic: str
    routing_key: str
    tenant_id: str
    event_id: str
    properties: bytes
    body: bytes


def wire_message(
    envelope: MessageEnvelope, routing_key: str, mode: ContentMode
) -> WireMessage | Refused:
    """Encode an envelope, or say what in it AMQP cannot carry."""
    if is_structured(envelope, mode):
        headers, body = structured_headers(envelope), structured_body(envelope)
        media_type: str | None = STRUCTURED_CONTENT
    else:
        headers, content = _headers(envelope), envelope.body()
        body, media_type = content or b"", None if content is None else envelope.content_type
    if not _known(routing_key):
        return invalid("routing key", f"is empty or longer than {_SHORT} bytes")
    if envelope.headers and not _COPIES.isdisjoint(envelope.headers):
        return invalid("header", "CC or BCC would send copies elsewhere")
    properties = _properties(envelope, media_type, headers, len(body))
    if isinstance(properties, Refused):
        return properties
    return WireMessage(
        envelope.topic or "",
        routing_key,
        envelope.tenant_id,
        envelope.event_id,
        properties,
        body,
    )


def publish_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    """Return the frame that announces a message; RabbitMQ returns it when no queue takes it."""
    method = b"".join((_PUBLISH, _short(exchange), _short(routing_key), _MANDATORY))
    return _framed(_METHOD, channel, method)


def content_frames(channel: int, message: WireMessage, frame_max: int) -> bytes:
    """Return the frames of a message's properties and body."""
    most = frame_max - FRAME_OVERHEAD
    body = message.body
    parts = [_framed(_HEADER, channel, message.properties)]
    parts += [_framed(_BODY, channel, body[at : at + most]) for at in range(0, len(body), most)]
    return b"".join(parts)


def _properties(
    envelope: MessageEnvelope, media_type: str | None, headers: Headers, size: int
) -> bytes | Refused:
    table = _table(headers)
    if table is None:
        return invalid("header", f"has a name longer than {_SHORT} bytes")
    content, moment = _known(media_type), envelope.occurred_at
    if media_type and not content:
        return invalid("content type", f"is longer than {_SHORT} bytes")
    # What is too long for a property is left out there: it travels among the headers as well.
    parts = (
        (_HAS_CONTENT_TYPE, content),
        (_HAS_HEADERS, _length(len(table)) + table),
        (_HAS_MODE, _PERSISTENT),
        (_HAS_ID, _fitting(envelope.event_id)),
        (_HAS_TIME, b"" if moment is None else _moment(int(moment.timestamp()))),
        (_HAS_TYPE, _known(envelope.event_type)),
        (_HAS_APP, _known(envelope.source)),
    )
    flags = sum([flag for flag, part in parts if part])
    return _content(_BASIC, 0, size, flags) + b"".join([part for _, part in parts])


def _table(headers: Headers) -> bytes | None:
    parts: list[bytes] = []
    for name, value in headers:
        key = _key(name)
        if key is None:
            return None
        if key:
            text = value.encode()
            parts += (key, _length(len(text)), text)
    return b"".join(parts)


@lru_cache(_REMEMBERED)
def _key(name: str) -> bytes | None:
    """Return a header's name and type; nothing for what is a property, None if it is too long."""
    if name == CONTENT_TYPE:
        return b""
    fitting = _fitting(name)
    return fitting + _TEXT if fitting else None


def _framed(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%b%b%b" % (_frame(kind, channel, len(payload)), payload, _FRAME_END)


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


def _fitting(text: str | None) -> bytes:
    encoded = (text or "").encode()
    return bytes((len(encoded),)) + encoded if 0 < len(encoded) <= _SHORT else b""


_known: Final = lru_cache(_REMEMBERED)(_fitting)  # for what many events have alike
