"""What the columns of a new row begin with, where the fold must know it as the table does."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    Computed,
    Identity,
    Null,
    Table,
    TextClause,
)

from pillarbox.errors import InvalidConfig
from pillarbox.readmodel.numbers import Keeping, converts, fits, is_number


def defaults_of(what: str, table: Table) -> Mapping[str, Any]:
    """Return the constants that columns of a new row begin with; refuse a number that has none.

    An increment adds to them, also in the batch that makes the row. Other defaults than those of
    numbers are left to the table, unless they are known here.
    """
    found = {column.key: _default(what, column) for column in table.columns}
    return {name: value for name, value in found.items() if value is not None}


def _default(what: str, column: Column[Any]) -> Any:
    own, server = column.default, column.server_default
    if own is not None and own.is_scalar:
        value = own.arg  # type: ignore[attr-defined]  # what is scalar has it
        return _unrounded(what, column, value) if is_number(column) else value
    if not is_number(column):
        return None
    if own is not None:
        return None if own.is_sequence else _number(what, column, getattr(own, "arg", None))
    if server is None or isinstance(server, Computed | Identity):
        return None
    return _number(what, column, getattr(server, "arg", None))


def _number(what: str, column: Column[Any], default: object) -> Any:
    """Read a number as it stands in SQL: plain, in quotes or brackets, with or without a type."""
    words = _words(default)
    plain = words.partition("::")[0].strip("()' ")
    if plain.upper() == "NULL":
        return None
    try:
        number = Decimal(plain)
    except InvalidOperation:
        raise _refused(what, column, "whose default is no constant") from None
    keeping = Keeping.of(column)
    if not fits(number, keeping.places):
        raise _refused(what, column, f"whose type does not hold its default {plain}")
    if converts(column):
        raise _refused(what, column, "whose type makes of its default what only a database tells")
    return keeping.given_back(number)


def _unrounded(what: str, column: Column[Any], value: Any) -> Any:
    """Return a value that is written with a new row, if it is read again as it is."""
    if not isinstance(value, int | float | Decimal) or converts(column):
        return value
    keeping = Keeping.of(column)
    if not fits(value, keeping.places):
        raise _refused(what, column, f"whose type does not hold its default {value}")
    return keeping.given_back(value)


def _words(default: object) -> str:
    """Return how a default stands in SQL, as far as it is a constant."""
    if isinstance(default, Null):
        return "NULL"
    found = default.value if isinstance(default, BindParameter) else default
    if isinstance(found, TextClause):
        return found.text
    return str(found) if isinstance(found, str | int | float | Decimal) else ""


def _refused(what: str, column: Column[Any], problem: str) -> InvalidConfig:
    return InvalidConfig(
        what,
        f"has the column {column.name!r}, a number {problem}",
        "give it a constant of its type, or none and set it in each Upsert",
    )
