"""What a message says of itself: CloudEvents attributes and plain headers, by their names."""

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from pillarbox.event.cloudevents import CONTEXT
from pillarbox.event.incoming import Flaw, Unreadable
from pillarbox.event.rules import RESERVED_HEADER_PREFIXES, RESERVED_HEADERS

MAX_HEADERS: Final = 256
MAX_HEADER_BYTES: Final = 65_536
MAX_TEXT: Final = 255
CONTENT_ENCODING: Final = "content-encoding"
KNOWN: Final = frozenset(
    {
        "datacontenttype",
        "dataschema",
        "id",
        "partitionkey",
        "sequence",
        "source",
        "specversion",
        "subject",
        "tenantid",
        "time",
        "type",
        *CONTEXT,
    }
)

# Kafka, Pulsar and Redis; HTTP and NATS; RabbitMQ; AMQP 1.0.
_PREFIXED: Final = re.compile(r"(ce_|ce-|cloudevents[_:])(.+)", re.DOTALL)
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_MAX_INT: Final = 2**63 - 1


class Flawed(Exception):
    """End the reading of a message with the answer that its consumer gets."""

    def __init__(self, code: Flaw, reason: str) -> None:
        super().__init__(reason)
        self.answer = Unreadable(code, reason)


class Parted(NamedTuple):
    """The headers of a message: attributes, what it says of itself plainly, and the producer's own."""

    attributes: dict[str, str]
    plain: dict[str, str]
    own: dict[str, str]


def parted(headers: Mapping[str, str]) -> Parted:
    """Part headers by their names, in the form of any binding; a broker's own are left out."""
    found = Parted({}, {}, {})
    for name, value in headers.items():
        kind, short = _kind(name) if len(name) <= MAX_TEXT else _kind_of(name)
        if kind is _Kind.OWN:
            found.own[name] = value
        elif kind is _Kind.PLAIN:
            _put(found.plain, short, value)
        elif kind is not _Kind.BROKERS:
            encoded = kind is _Kind.PERCENT and "%" in value
            _put(found.attributes, short, _percent_decoded(short, value) if encoded else value)
    return found


def producer_headers(headers: Parted, attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the producer's own headers, its trace and correlation, and unknown attributes."""
    made = headers.own
    for name in attributes.keys() - KNOWN:
        made[f"ce_{name}"] = attributes[name]
    for name in CONTEXT:
        if (value := headers.plain.get(name) or attributes.get(name)) is not None:
            made[name] = value
    return made


class _Kind(Enum):
    """What a header is by its name."""

    ATTRIBUTE, PERCENT, PLAIN, BROKERS, OWN = range(5)


def _kind_of(name: str) -> tuple[_Kind, str]:
    folded = name.lower()
    if match := _PREFIXED.fullmatch(folded):
        return (_Kind.PERCENT if match[1] == "ce-" else _Kind.ATTRIBUTE), match[2]
    if folded in RESERVED_HEADERS or folded == CONTENT_ENCODING:
        return _Kind.PLAIN, folded
    return (_Kind.BROKERS if folded.startswith(RESERVED_HEADER_PREFIXES) else _Kind.OWN), name


_kind: Final = lru_cache(1_024)(_kind_of)


def checked_text(name: str, text: str | None, code: Flaw = "invalid-attribute") -> str | None:
    """Return a text that the tables can hold; an empty one is none."""
    if not text:
        return None
    if len(text) > MAX_TEXT:
        raise Flawed(code, f"{name} has {len(text)} characters > {MAX_TEXT}")
    if _UNSAFE.search(text):
        raise Flawed(code, f"{name} holds a control character or a lone surrogate")
    if code == "invalid-attribute" and text.strip() != text:
        raise Flawed(code, f"{name} begins or ends with a space")
    return text


def checked_id(text: str) -> str:
    """Return an id of any length that a database can hold."""
    if not text:
        raise Flawed("no-id", "the id is empty")
    if _UNSAFE.search(text):
        raise Flawed("invalid-id", "the id holds a control character or a lone surrogate")
    return text


def checked_whole(name: str, text: str | None, low: int = 0) -> int | None:
    """Return a whole number that fits into a column, or None where there is none."""
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or not low <= int(text) <= _MAX_INT:
        raise Flawed("invalid-attribute", f"{name} is no whole number from {low}")
    return int(text)


def _put(found: dict[str, str], name: str, value: str) -> None:
    """Keep a value; two that differ under one name would let each reader choose another."""
    if found.setdefault(name, value) != value:
        raise Flawed("invalid-attribute", f"{name} comes twice, with different values")


def _percent_decoded(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise Flawed("invalid-attribute", f"{name} is no percent-encoded UTF-8") from None
