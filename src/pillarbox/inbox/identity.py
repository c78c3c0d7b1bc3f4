"""What tells messages apart: their ids as the inbox keeps them, and the hash of their content."""

import json
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from pillarbox.errors import InvalidMessageId
from pillarbox.event.encoders import DEFAULT_ENCODERS, DEFAULT_LIMITS, Encoders, PayloadLimits
from pillarbox.event.payload import encode_json
from pillarbox.outbox.new_event import JsonText, Key

HASHED_PREFIX: Final = "sha256:"
MAX_LENGTH: Final = 255


def stored_id(message_id: Key) -> str:
    """Return an id as the inbox keeps it: as it came, or as its hash under a marked prefix.

    Hashed are ids over 255 characters and those that no database column holds. An id that begins
    like a hash is hashed too, so that nobody can name the place of another message.

    >>> stored_id("order-17")
    'order-17'
    >>> len(stored_id("x" * 256))
    71
    """
    text = _text(message_id)
    if not text:
        raise InvalidMessageId(
            "is empty", "pass the producer's id, or content_id(…) if it has none"
        )
    fits = len(text) <= MAX_LENGTH and not text.startswith(HASHED_PREFIX)
    if fits and (text.isprintable() or _is_storable(text)):
        return text
    return HASHED_PREFIX + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def content_id(routing_key: str, body: bytes) -> str:
    """Make an id of a routing key and a body, for producers that send none: 64 hex digits.

    Two messages that are equal on purpose become one, and one that is written anew becomes two, so
    use it only for foreign producers and where that cannot be.
    """
    key = routing_key.encode("utf-8", "surrogatepass")
    return sha256(len(key).to_bytes(4, "big") + key + body).hexdigest()


def content_hash(
    payload: Any,
    *,
    limits: PayloadLimits = DEFAULT_LIMITS,
    encoders: Encoders = DEFAULT_ENCODERS,
) -> str | None:
    """Return the SHA-256 of a content, or nothing where none is given.

    Bytes and `JsonText` are hashed as they are; other values by their JSON with sorted keys, so
    that equal values have equal hashes.
    """
    match payload:
        case None:
            return None
        case bytes() | bytearray() | memoryview():
            return sha256(payload).hexdigest()
        case JsonText():
            return sha256(payload.encode()).hexdigest()
    # Not orjson: it would read whole numbers beyond 64 bits as floats.
    value = json.loads(encode_json(payload, limits=limits, encoders=encoders))
    sorted_text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return sha256(sorted_text.encode()).hexdigest()


def _text(message_id: Key) -> str:
    if isinstance(message_id, str):
        return message_id if type(message_id) is str else str.__str__(message_id)
    if isinstance(message_id, bool) or not isinstance(message_id, (int, UUID)):
        problem = f"has the type {type(message_id).__qualname__}"
        raise InvalidMessageId(problem, "pass a text, a whole number or a UUID")
    return str(message_id)


def _is_storable(text: str) -> bool:
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
