"""Payloads as JSON text: what is accepted arrives unchanged, the rest is refused with its path.

orjson writes the text; a few searches in that text tell whether it may have changed a value
(NaN becomes null there). Only then, or when orjson refuses, an exact walk looks at every value.
Messages name paths, types and limits, never values.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import orjson

from pillarbox.errors import InvalidEvent, PayloadNotJson, PayloadNotUnicode, PayloadTooDeep
from pillarbox.event.encoders import (
    DEFAULT_ENCODERS,
    DEFAULT_LIMITS,
    FINITE_REMEDY,
    Encoders,
    PayloadLimits,
    record_encoder,
)
from pillarbox.event.walk import TOO_DEEP_FOR_STACK, Walk, encoded, type_name

_MAX_EXPONENT_DIGITS: Final = 3
_NOTHING: Final = (
    "payload",
    "is None",
    "pass tombstone=True to send a tombstone, or give a payload",
)

# Subclasses pass through so that the encoder table sees them before orjson does.
_FAST = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def encode_json(
    value: object,
    *,
    limits: PayloadLimits = DEFAULT_LIMITS,
    encoders: Encoders = DEFAULT_ENCODERS,
) -> str:
    """Return a payload as compact JSON text, or raise `InvalidEvent` with the path at fault."""
    if value is None or encoders.overrides_orjson:
        return _encode_exactly(value, limits, encoders)
    try:
        text = orjson.dumps(value, encoders.encode, _FAST).decode()
    except TypeError as error:
        # orjson wraps whatever `default` raised, a keyboard interrupt included.
        if error.__cause__ is not None and not isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        return _encode_exactly(value, limits, encoders)
    # A payload that is too deep has at least as many brackets as levels.
    suspicious = "null" in text or text.count("{") + text.count("[") > limits.depth
    if suspicious and not _is_plain(value, encoders.leaves, limits.depth):
        return _encode_exactly(value, limits, encoders)
    if "\\" in text and "\\u0000" in text:
        return _encode_exactly(value, limits, encoders)
    return text


def byte_length(text: str) -> int:
    """Return the size of a text in UTF-8, without encoding it when it is ASCII."""
    return len(text) if text.isascii() else len(text.encode())


def event_fields(event: object) -> dict[str, object]:
    """Return the fields of an event object or mapping; what they hold is left as it is."""
    if isinstance(event, Mapping):
        return dict(event)
    kind: type = type(event)
    encode = record_encoder(kind)
    fields = None if encode is None else encoded(event, encode)
    if not isinstance(fields, dict):
        raise InvalidEvent(
            "event",
            f"of type {type_name(event)} has no fields to send",
            "pass a DomainEvent, a dataclass, an attrs or Pydantic object, or a mapping",
        )
    return fields


def _is_plain(value: Any, leaves: frozenset[type], room: int) -> bool:
    """Tell whether orjson wrote this value faithfully and no deeper than the room left."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        value = value.values()
    elif kind is not list and kind is not tuple:
        return kind in leaves
    if room == 0:
        return False
    for item in value:
        if type(item) not in leaves and not _is_plain(item, leaves, room - 1):
            return False
    return True


def _encode_exactly(value: object, limits: PayloadLimits, encoders: Encoders) -> str:
    walk = Walk(limits, encoders)
    normal = walk.run(value)
    if normal is None:
        raise PayloadNotJson(*_NOTHING)
    if walk.met_big_int:
        return json.dumps(normal, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return orjson.dumps(normal).decode()


@dataclass(frozen=True, slots=True)
class _Fault:
    """A part of a JSON text that cannot be kept, to be refused when its path is known."""

    problem: str
    remedy: str


def _raise_fault(fault: _Fault) -> NoReturn:
    raise PayloadNotJson("value", fault.problem, fault.remedy)


_TEXT_ENCODERS: Final = Encoders({_Fault: _raise_fault})


def check_json_text(text: str | bytes, *, limits: PayloadLimits = DEFAULT_LIMITS) -> str:
    """Return JSON text exactly as it was written, or raise `InvalidEvent` with the path at fault."""
    written = text if isinstance(text, str) else _decoded(text)
    if decode_json(written, limits=limits) is None:
        raise PayloadNotJson(*_NOTHING)
    return written


def decode_json(
    text: str | bytes, *, limits: PayloadLimits = DEFAULT_LIMITS, strict: bool = True
) -> Any:
    """Return what JSON text says, or raise `InvalidEvent` with the path at fault.

    Of a key that comes twice the last value counts, unless `strict` refuses it.
    """
    written = text if isinstance(text, str) else _decoded(text)
    try:
        # A text equal to its own re-encoding has no duplicate keys and no lossy numbers.
        value = orjson.loads(written)
        if encode_json(value, limits=limits) == written:
            return value
    except ValueError:
        pass  # The exact reading below finds the fault and its path.
    return Walk(limits, _TEXT_ENCODERS).run(_read(written, strict=strict))


def _read(written: str, *, strict: bool) -> object:
    try:
        return json.loads(
            written,
            object_pairs_hook=_members if strict else dict,
            parse_float=_float,
            parse_int=_int,
            parse_constant=lambda name: _Fault(f"is {name}", FINITE_REMEDY),
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise PayloadNotJson(
            "payload", f"is not valid JSON at {place}", "write it with a JSON library"
        ) from None
    except RecursionError:
        raise PayloadTooDeep(*TOO_DEEP_FOR_STACK) from None


def _decoded(text: object) -> str:
    if not isinstance(text, bytes):
        raise PayloadNotJson(
            "payload", f"of type {type_name(text)} is no JSON text", "pass a str or bytes"
        )
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise PayloadNotUnicode(
            "payload", "is not UTF-8", "encode the JSON text as UTF-8"
        ) from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object] | _Fault:
    members = dict(pairs)
    if len(members) < len(pairs):
        return _Fault("has a duplicate key", "keep one of the values")
    return members


def _int(digits: str) -> int | _Fault:
    try:
        return int(digits)
    except ValueError:
        return _Fault("is an integer with more digits than Python reads", "send it as a string")


def _float(written: str) -> float | _Fault:
    number = float(written)
    mantissa, _, exponent = written.lower().partition("e")
    lost = number == 0 and mantissa.strip("-0.")
    if math.isinf(number) or lost or len(exponent.lstrip("+-0")) > _MAX_EXPONENT_DIGITS:
        return _Fault("is a number beyond the range of a double", "send it as a string")
    return number
