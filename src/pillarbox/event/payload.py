"""Payloads as JSON text: what is accepted arrives unchanged, the rest is refused with its path.

orjson writes the text; a few searches in that text tell whether it may have changed a value
(NaN becomes null there). Only then, or when orjson refuses, an exact walk looks at every value.
Messages name paths, types and limits, never values.
"""

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, Final, NoReturn
from uuid import UUID

import orjson

from pillarbox.errors import (
    InvalidConfig,
    InvalidEvent,
    InvalidTime,
    PayloadNotJson,
    PayloadNotUnicode,
    PayloadTooDeep,
)

Encoder = Callable[[Any], object]

MAX_DEPTH: Final = 200
MAX_INT: Final = 2**63 - 1
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_JSON_TYPES: Final = _SCALARS | {float, dict, list, tuple}
_MAX_ENCODINGS: Final = 8
_MAX_SHOWN_STEPS: Final = 16
_MAX_SHOWN_KEY: Final = 64
_MAX_EXPONENT_DIGITS: Final = 3

# Subclasses pass through so that the encoder table sees them before orjson does.
_FAST = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """Bound the nesting of a payload and the size of its integers."""

    depth: int = 64
    allow_big_int: bool = False

    def __post_init__(self) -> None:
        if type(self.depth) is not int or not 1 <= self.depth <= MAX_DEPTH:
            raise InvalidConfig(
                "PayloadLimits.depth",
                f"is not a whole number from 1 to {MAX_DEPTH}",
                "choose a depth in that range; 64 is the default",
            )


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise PayloadNotJson("value", "is a Decimal NaN or Infinity", _FINITE_REMEDY)
    return str(value)


def _datetime(value: datetime) -> str:
    # Comparing with timedelta also catches pandas.NaT, which is a datetime and claims an offset.
    if not isinstance(value.utcoffset(), timedelta):
        raise InvalidTime(
            "value", "is a datetime without time zone", "give it one, as in datetime.now(UTC)"
        )
    return value.isoformat()


def _base64(value: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(value).decode("ascii")


def _iso(value: date | time) -> str:
    return value.isoformat()


_FINITE_REMEDY: Final = "JSON has no such number, so send None or leave the field out"
_LEAVES: Final[Mapping[type, Encoder]] = MappingProxyType(
    {
        Decimal: _decimal,
        datetime: _datetime,
        date: _iso,
        time: _iso,
        UUID: str,
        bytes: _base64,
        bytearray: _base64,
        memoryview: _base64,
    }
)
DEFAULT_TABLE: Final[Mapping[type, Encoder]] = MappingProxyType(
    {**_LEAVES, Enum: attrgetter("value"), MappingProxyType: dict}
)


@dataclass(frozen=True, slots=True, eq=False)
class Encoders:
    """Map types that JSON lacks to functions which return what JSON has.

    A subclass uses the entry of its nearest base. Dataclasses, attrs classes and Pydantic models
    need no entry. A function that cannot encode its value raises `InvalidEvent`.
    """

    table: Mapping[type, Encoder] = field(default_factory=lambda: DEFAULT_TABLE)
    # Types whose encoding is known to be one finite JSON scalar.
    leaves: frozenset[type] = field(init=False, repr=False)
    # orjson writes enums and UUIDs itself and would pass over an entry for them.
    overrides_orjson: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if taken := [kind.__name__ for kind in self.table if kind in _JSON_TYPES]:
            names = ", ".join(sorted(taken))
            raise InvalidConfig(
                "Encoders.table",
                f"has an entry for {names}, which JSON has itself",
                "wrap the values in a type of your own and register that",
            )
        kept = {kind for kind, encode in _LEAVES.items() if self.table.get(kind) is encode}
        native = (kind for kind in {Enum, UUID, *self.table} if issubclass(kind, Enum | UUID))
        changed = any(self.table.get(kind) is not DEFAULT_TABLE.get(kind) for kind in native)
        object.__setattr__(self, "table", MappingProxyType(dict(self.table)))
        object.__setattr__(self, "leaves", _SCALARS | kept)
        object.__setattr__(self, "overrides_orjson", changed)

    def extended(self, more: Mapping[type, Encoder]) -> "Encoders":
        """Return these encoders with more entries; a new entry wins over an old one."""
        return Encoders({**self.table, **more})

    def find(self, kind: type) -> Encoder | None:
        """Return the function for a type, or None when nobody knows the type."""
        for table in (self.table, _NATIVE):
            for base in kind.__mro__:
                if encode := table.get(base):
                    return encode
        return _record_encoder(kind)

    def encode(self, value: object) -> object:
        """Encode one value by one step, as orjson's `default` wants it."""
        encode = self.find(type(value))
        if encode is None:
            raise TypeError
        return encode(value)


# Unbound methods, because a subclass may override what the plain type would do.
_NATIVE: Final[Mapping[type, Encoder]] = MappingProxyType(
    {
        str: str.__str__,
        int: int.__int__,
        float: float.__float__,
        dict: lambda value: dict(dict.items(value)),
        list: lambda value: list(list.__iter__(value)),
    }
)


def _record_encoder(kind: type) -> Encoder | None:
    # attrs and Pydantic are optional, so their objects are known by what they carry.
    if hasattr(kind, "__dataclass_fields__"):
        return lambda value: _named(value, dataclasses.fields(value))
    if hasattr(kind, "__attrs_attrs__"):
        return lambda value: _named(value, kind.__attrs_attrs__)
    if callable(getattr(kind, "model_dump", None)):
        return methodcaller("model_dump", mode="python")
    return None


def _named(value: object, fields: Iterable[Any]) -> dict[str, object]:
    return {item.name: getattr(value, item.name) for item in fields}


DEFAULT_LIMITS: Final = PayloadLimits()
DEFAULT_ENCODERS: Final = Encoders()


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
    encode = _record_encoder(type(event))
    fields = (
        None if encode is None else _Walk(DEFAULT_LIMITS, DEFAULT_ENCODERS).apply(encode, event)
    )
    if not isinstance(fields, dict):
        raise InvalidEvent(
            "event",
            f"of type {_type_name(event)} has no fields to send",
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
    walk = _Walk(limits, encoders)
    normal = walk.run(value)
    if normal is None:
        raise PayloadNotJson(
            "payload", "is None", "pass tombstone=True to send a tombstone, or give a payload"
        )
    if walk.met_big_int:
        return json.dumps(normal, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return orjson.dumps(normal).decode()


class _Walk:
    """One exact pass over a payload, which knows the path it stands on."""

    __slots__ = ("_encoders", "_limits", "_open", "_steps", "met_big_int")

    def __init__(self, limits: PayloadLimits, encoders: Encoders) -> None:
        self._limits, self._encoders = limits, encoders
        self._open: set[int] = set()
        self._steps: list[str | int] = []
        self.met_big_int = False

    def run(self, value: object) -> object:
        """Return the value made of plain JSON types only."""
        try:
            return self._value(value)
        except RecursionError:
            raise PayloadTooDeep(*_TOO_DEEP_FOR_STACK) from None

    def apply(self, encode: Encoder, value: object) -> object:
        """Call an encoder and give its refusal the path."""
        try:
            return encode(value)
        except InvalidEvent as error:
            plain = type(error).__init__ is InvalidEvent.__init__
            kind = type(error) if plain else PayloadNotJson
            raise kind(_path(self._steps), error.problem, error.remedy) from error.__cause__
        except Exception as error:  # noqa: BLE001 - encoders are foreign code and may raise anything
            self._refuse(
                f"of type {_type_name(value)} could not be encoded ({_type_name(error)})",
                "see the cause, or pass plain JSON values",
                cause=error,
            )

    def _value(self, value: object) -> object:
        plain = value
        for _ in range(_MAX_ENCODINGS):
            if type(plain) in _JSON_TYPES:
                break
            plain = self.apply(self._encoder(plain), plain)
        else:
            self._refuse(
                f"of type {_type_name(value)} is encoded without end",
                "let its encoder return plain JSON values",
            )
        if isinstance(plain, dict | list | tuple):
            return self._container(value, plain)
        self._check_scalar(plain)
        return plain

    def _encoder(self, value: object) -> Encoder:
        encode = self._encoders.find(type(value))
        if encode is None:
            self._refuse(f"has the type {_type_name(value)}, which JSON lacks", _remedy_for(value))
        return encode

    def _container(
        self, owner: object, plain: dict[object, object] | list[object] | tuple[object, ...]
    ) -> object:
        if id(owner) in self._open:
            self._refuse("contains itself", "send the id of the object instead of the object")
        if len(self._open) >= self._limits.depth:
            raise PayloadTooDeep(
                _path(self._steps),
                f"is nested deeper than {self._limits.depth} levels",
                f"flatten it, or raise PayloadLimits.depth (at most {MAX_DEPTH})",
            )
        self._open.add(id(owner))
        names = self._names(plain) if isinstance(plain, dict) else None
        values = []
        for place, item in enumerate(plain.values() if isinstance(plain, dict) else plain):
            self._steps.append(place if names is None else names[place])
            values.append(self._value(item))
            self._steps.pop()
        self._open.discard(id(owner))
        return values if names is None else dict(zip(names, values, strict=True))

    def _names(self, plain: dict[object, object]) -> list[str]:
        # Keys can differ as objects and be one text: a str subclass may define its own equality.
        names: dict[str, None] = {}
        for key in plain:
            if not isinstance(key, str):
                self._refuse(f"has a key of type {_type_name(key)}", "make every key a str")
            self._check_text(key, "has a key with")
            names[str.__str__(key)] = None
        if len(names) < len(plain):
            self._refuse("has two keys that are the same text", "keep one of them")
        return list(names)

    def _check_scalar(self, value: object) -> None:
        if isinstance(value, str):
            self._check_text(value, "holds")
        elif isinstance(value, float) and not math.isfinite(value):
            self._refuse("is NaN" if math.isnan(value) else "is Infinity", _FINITE_REMEDY)
        elif isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
            self._check_big_int(value)

    def _check_text(self, text: str, verb: str) -> None:
        if "\0" in text:
            self._refuse(f"{verb} a NUL character", "remove it, or send the content as bytes")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PayloadNotUnicode(
                _path(self._steps),
                f"{verb} a lone surrogate",
                "decode the text with its true encoding, or send the content as bytes",
            ) from None

    def _check_big_int(self, value: int) -> None:
        if not self._limits.allow_big_int:
            self._refuse(
                "is an integer beyond ±(2^63-1)",
                "send it as a string, or allow it with PayloadLimits(allow_big_int=True)",
            )
        try:
            str(value)
        except ValueError:
            self._refuse("is an integer with more digits than Python writes", "send it as bytes")
        self.met_big_int = True

    def _refuse(self, problem: str, remedy: str, cause: Exception | None = None) -> NoReturn:
        raise PayloadNotJson(_path(self._steps), problem, remedy) from cause


_TOO_DEEP_FOR_STACK: Final = (
    "payload",
    "is nested deeper than the stack of this call allows",
    "flatten it, or encode it nearer to the top of the program",
)


def _path(steps: Iterable[str | int]) -> str:
    shown = [_step(step) for step in steps]
    if len(shown) > _MAX_SHOWN_STEPS:
        shown[_MAX_SHOWN_STEPS:] = ["…"]
    return "payload" + "".join(shown)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    short = step if len(step) <= _MAX_SHOWN_KEY else step[:_MAX_SHOWN_KEY] + "…"
    return f".{short}" if short.isidentifier() and short.isascii() else f"[{json.dumps(short)}]"


def _type_name(value: object) -> str:
    return type(value).__qualname__


def _remedy_for(value: object) -> str:
    if isinstance(value, set | frozenset):
        return "pass a sorted list, since a set has no order"
    if isinstance(value, tuple):
        return "pass its _asdict() or a list"
    return "pass a str, number, list or dict, or an encoder for the type"


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
    try:
        # A text equal to its own re-encoding has no duplicate keys and no lossy numbers.
        if encode_json(orjson.loads(written), limits=limits) == written:
            return written
    except ValueError:
        pass  # The exact reading below finds the fault and its path.
    try:
        value = json.loads(
            written,
            object_pairs_hook=_members,
            parse_float=_float,
            parse_int=_int,
            parse_constant=lambda name: _Fault(f"is {name}", _FINITE_REMEDY),
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise PayloadNotJson(
            "payload", f"is not valid JSON at {place}", "write it with a JSON library"
        ) from None
    except RecursionError:
        raise PayloadTooDeep(*_TOO_DEEP_FOR_STACK) from None
    _encode_exactly(value, limits, _TEXT_ENCODERS)
    return written


def _decoded(text: object) -> str:
    if not isinstance(text, bytes):
        raise PayloadNotJson(
            "payload", f"of type {_type_name(text)} is no JSON text", "pass a str or bytes"
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
