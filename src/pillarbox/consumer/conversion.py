"""Values of JSON as values of Python: the other direction of the encoder table."""

import base64
import binascii
import math
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from pillarbox.event.incoming import Flaw

Convert = Callable[[Any], Any]


class Misfit(Exception):
    """A value that a model cannot take, with the path to it; the value is never shown."""

    def __init__(self, code: Flaw, problem: str, path: str = "") -> None:
        super().__init__(f"payload{path} {problem}")
        self.code: Flaw = code
        self.problem, self.path = problem, path

    def inside(self, step: str) -> "Misfit":
        """Return the same one step further out."""
        return Misfit(self.code, self.problem, step + self.path)


def unchanged(value: Any) -> Any:
    """Return a value as it is."""
    return value


def exactly(allowed: tuple[Any, ...]) -> Convert:
    """Make the converter of a `Literal`."""

    def convert(value: Any) -> Any:
        if any(type(value) is type(choice) and value == choice for choice in allowed):
            return value
        raise Misfit("invalid-field", "is none of the values that are allowed")

    return convert


def contained(
    kind: Any, arguments: tuple[Any, ...], make: Callable[[Any], Convert]
) -> Convert | None:
    """Make the converter of a container, or return None for what is none."""
    if kind in _MAPPINGS:
        key, value = map(make, arguments or (Any, Any))
        return lambda found: _mapped(found, key, value)
    if kind is tuple and arguments and arguments[-1] is not ...:
        return _fixed([make(argument) for argument in arguments])
    if kind not in _SEQUENCES:
        return None
    item, collect = make(arguments[0] if arguments else Any), _SEQUENCES[kind]
    return lambda found: collect(_items(found, item))


def _fixed(items: list[Convert]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise Misfit("invalid-field", f"is no list of {len(items)} items")
        return tuple(_item(at, value[at], items[at]) for at in range(len(items)))

    return convert


def _items(value: Any, convert: Convert) -> list[Any]:
    if not isinstance(value, list):
        raise Misfit("invalid-field", "is no list")
    return [_item(at, item, convert) for at, item in enumerate(value)]


def _item(at: int, value: Any, convert: Convert) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.inside(f"[{at}]") from misfit.__cause__


def _mapped(found: Any, key: Convert, value: Convert) -> dict[Any, Any]:
    if not isinstance(found, Mapping):
        raise Misfit("invalid-field", "is no object")
    try:
        return {key(name): value(item) for name, item in found.items()}
    except Misfit as misfit:
        raise misfit.inside("[…]") from misfit.__cause__


def _of(*kinds: type, says: str) -> Convert:
    def convert(value: Any) -> Any:
        # By the exact type: a bool is an int otherwise.
        if type(value) in kinds:
            return value
        raise Misfit("invalid-field", f"is no {says}")

    return convert


def _float(value: Any) -> float:
    number: int | float = _of(int, float, says="number")(value)
    return float(number)


def _from_text(parse: Callable[[str], Any], says: str) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            try:
                return parse(value)
            except (ValueError, InvalidOperation, binascii.Error) as error:
                raise Misfit("invalid-field", f"is no {says}") from error
        raise Misfit("invalid-field", f"is no {says}")

    return convert


def _decimal(value: Any) -> Decimal:
    # A float as it is written, not as the binary fraction that it is.
    text = repr(value) if type(value) in (int, float) else value
    number: Decimal = _from_text(Decimal, "decimal number")(text)
    if not number.is_finite():
        raise Misfit("invalid-field", "is no finite number")
    return number


def _datetime(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise Misfit("invalid-field", "is a time without a time zone")
    return moment


def _seconds(value: Any) -> timedelta:
    seconds = _float(value)
    if math.isfinite(seconds) and abs(seconds) < timedelta.max.total_seconds():
        return timedelta(seconds=seconds)
    raise Misfit("invalid-field", "is no number of seconds")


def _hashable(items: list[Any]) -> list[Any]:
    if all(isinstance(item, Hashable) for item in items):
        return items
    raise Misfit("invalid-field", "holds what cannot stand in a set")


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


SCALARS: Final[Mapping[Any, Convert]] = MappingProxyType(
    {
        Any: unchanged,
        object: unchanged,
        str: _of(str, says="text"),
        int: _of(int, says="whole number"),
        float: _float,
        bool: _of(bool, says="true or false"),
        type(None): _of(type(None), says="null"),
        Decimal: _decimal,
        UUID: _from_text(UUID, "UUID"),
        datetime: _from_text(_datetime, "time of ISO 8601"),
        date: _from_text(date.fromisoformat, "date of ISO 8601"),
        time: _from_text(time.fromisoformat, "time of day of ISO 8601"),
        timedelta: _seconds,
        bytes: _from_text(_base64, "base64 text"),
    }
)
_MAPPINGS: Final = frozenset({dict, Mapping, MutableMapping})
_SEQUENCES: Final[Mapping[Any, Callable[[list[Any]], Any]]] = MappingProxyType(
    {
        list: unchanged,
        Sequence: unchanged,
        MutableSequence: unchanged,
        Iterable: unchanged,
        Collection: unchanged,
        tuple: tuple,
        set: lambda items: set(_hashable(items)),
        frozenset: lambda items: frozenset(_hashable(items)),
        AbstractSet: lambda items: frozenset(_hashable(items)),
    }
)
