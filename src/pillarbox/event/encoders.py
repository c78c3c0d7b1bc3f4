"""The encoder table: how types that JSON lacks become types that it has."""

import base64
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from pillarbox.errors import InvalidConfig, InvalidTime, PayloadNotJson

Encoder = Callable[[Any], object]

MAX_DEPTH: Final = 200
FINITE_REMEDY: Final = "JSON has no such number, so send None or leave the field out"
_SCALARS: Final = frozenset({str, int, bool, type(None)})
JSON_TYPES: Final = _SCALARS | {float, dict, list, tuple}


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
        raise PayloadNotJson("value", "is a Decimal NaN or Infinity", FINITE_REMEDY)
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
        if taken := [kind.__name__ for kind in self.table if kind in JSON_TYPES]:
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
        return record_encoder(kind)

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


@lru_cache(maxsize=1024)
def record_encoder(kind: type) -> Encoder | None:
    """Return the function that turns an object with fields into a mapping, or None."""
    # attrs and Pydantic are optional, so their objects are known by what they carry.
    if hasattr(kind, "__dataclass_fields__"):
        names = tuple(item.name for item in dataclasses.fields(kind))
        return lambda value: {name: getattr(value, name) for name in names}
    if hasattr(kind, "__attrs_attrs__"):
        return lambda value: _named(value, kind.__attrs_attrs__)
    if callable(getattr(kind, "model_dump", None)):
        return methodcaller("model_dump", mode="python")
    return None


def _named(value: object, fields: Iterable[Any]) -> dict[str, object]:
    return {item.name: getattr(value, item.name) for item in fields}


DEFAULT_LIMITS: Final = PayloadLimits()
DEFAULT_ENCODERS: Final = Encoders()
