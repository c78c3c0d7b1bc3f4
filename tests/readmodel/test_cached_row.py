"""Rows that a cache keeps come back as they were, or are not kept."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    JSON,
    Column,
    Date,
    DateTime,
    Dialect,
    Interval,
    LargeBinary,
    Numeric,
    String,
    Time,
    TypeDecorator,
    Uuid,
)
from sqlalchemy import Enum as EnumType

from pillarbox.readmodel.cached_row import decoded, encoded
from tests.readmodel.rig import Accounts


def test_a_row_is_read_back_with_the_types_of_its_columns() -> None:
    row = {
        "tenant_id": "t",
        "account_id": "a",
        "owner": None,
        "status": "OPEN",
        "deposits": 1,
        "cents": 2,
    }
    columns = {column.name: column for column in Accounts.table.columns}

    content = encoded(row, columns)

    assert content is not None
    assert decoded(content, columns) == row


class Mood(Enum):
    OPEN = "open"
    SHUT = "shut"


class Money(TypeDecorator[tuple[str, int]]):
    """An amount with its currency, in one column."""

    impl = String(20)
    cache_ok = True

    def process_bind_param(self, value: tuple[str, int] | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else f"{value[0]} {value[1]}"

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, int] | None:
        del dialect
        if value is None:
            return None
        currency, _, amount = value.partition(" ")
        return currency, int(amount)


ODD: Mapping[str, tuple[Column[Any], object]] = {
    "time": (Column("x", Time), time(8, 30)),
    "interval": (Column("x", Interval), timedelta(days=-1, microseconds=7)),
    "enum": (Column("x", EnumType(Mood)), Mood.SHUT),
    "date": (Column("x", Date), date(2026, 10, 25)),
    "datetime": (Column("x", DateTime(timezone=True)), datetime(2026, 10, 25, 2, 30, tzinfo=UTC)),
    "decimal": (Column("x", Numeric(10, 2)), Decimal("1.50")),
    "uuid": (Column("x", Uuid), UUID(int=7)),
    "bytes": (Column("x", LargeBinary), b"\x00\xff"),
    "json": (Column("x", JSON), {"a": [1, None, "b"]}),
    "nothing": (Column("x", Interval), None),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_value_of_any_type_is_read_back_as_it_was(kind: str) -> None:
    """Times and enums came back as texts from the cache, and as themselves from the table."""
    column, value = ODD[kind]

    content = encoded({"x": value}, {"x": column})

    assert content is not None
    found = decoded(content, {"x": column})["x"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Column("x", Money), ("CHF", 3)),
        (Column("x", JSON), {"a": float("nan")}),
        (Column("x", JSON), {1: "a"}),
        (Column("x", JSON), {"a": object()}),
    ],
    ids=["decorated", "NaN", "key that is no text", "object"],
)
def test_a_row_that_could_not_be_read_back_is_not_kept(column: Column[Any], value: object) -> None:
    assert encoded({"x": value}, {"x": column}) is None
