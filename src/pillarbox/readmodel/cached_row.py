"""A row as a cache keeps it: JSON, read back with the types of its columns."""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Column

Row = Mapping[str, Any]

_WRITERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    Decimal: str,
    UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
}
_READERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    timedelta: lambda value: timedelta(*value),
    Decimal: Decimal,
    UUID: UUID,
    bytes: base64.b64decode,
}


def encoded(row: Row, columns: Mapping[str, Column[Any]]) -> bytes | None:
    """Write a row; None if `decoded` would read another one, as with types that JSON does not know."""
    plain = {name: _plain(value) for name, value in row.items()}
    try:
        content = json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
        read = decoded(content, columns)
    except (TypeError, ValueError, LookupError):
        return None
    return content if all(_is_same(read[name], value) for name, value in row.items()) else None


def decoded(content: bytes, columns: Mapping[str, Column[Any]]) -> Row:
    """Read a row that `encoded` has written."""
    return {
        name: value if value is None else _typed(value, columns[name])
        for name, value in json.loads(content).items()
    }


def _is_same(read: Any, value: Any) -> bool:
    # asyncpg has a UUID of its own, which is one.
    return read == value and (type(read) is type(value) or isinstance(value, UUID))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind):
            return writer(value)
    return value


def _typed(value: Any, column: Column[Any]) -> Any:
    try:
        kind = column.type.python_type
    except NotImplementedError:
        return value
    if issubclass(kind, Enum):
        return kind[value]
    return _READERS[kind](value) if kind in _READERS else value
