"""A number that its column would round is refused: a batch must come to what its events come to."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    REAL,
    Column,
    Double,
    Float,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    delete,
)
from sqlalchemy.types import TypeEngine

from pillarbox import DomainEvent
from pillarbox.readmodel.changes import Change, Increment, Upsert
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.numbers import adds_up, fits, places_of
from pillarbox.schema.tables import readmodel, readmodel_applied, readmodel_held
from tests.readmodel.rig import Rig
from tests.support.database import PROPERTY_BACKENDS, on

METADATA = MetaData()
KIND_OF: dict[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "float": float,
    "int": lambda amount: int(float(amount)),
}
on_asyncpg = on("postgres18+asyncpg")
on_three = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


class Paid(DomainEvent):
    """An amount, as the method has it: a decimal, a float or an int."""

    aggregate_type = "account"
    account_id: str
    amount: str
    kind: str = "decimal"

    @property
    def number(self) -> Any:
        return KIND_OF[self.kind](self.amount)


class Set(Paid):
    pass


class Sums(
    ReadModel,
    name="sums",
    table=Table(
        "sums_account",
        METADATA,
        Column("tenant_id", String(64), primary_key=True),
        Column("account_id", String(64), primary_key=True),
        Column("total", Numeric(12, 2)),
        # Each begins with a number of the other kind.
        Column("fees", Numeric(12, 2), default=0.1),
        Column("weight", Float, default=Decimal("0.1")),
        Column("rough", Numeric(12, 2, asdecimal=False)),
        Column("huge", Numeric(38, 2)),
    ),
):
    @on_event(Paid)
    def paid(self, event: Paid) -> Change:
        number = event.number
        return Increment(
            event.account_id, total=number, fees=number, weight=number, rough=number, huge=number
        )

    @on_event(Set)
    def set(self, event: Set) -> Change:
        return Upsert(event.account_id, total=event.number, weight=event.number)


@pytest.fixture
async def sums(rig: Rig) -> Rig:
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        for model in (Sums, Narrow):
            await connection.execute(delete(model.table))
    return rig


Row = dict[str, Any]


async def applied(rig: Rig, batch_size: int) -> tuple[dict[str, Row], int]:
    """Apply the log from its beginning, in batches of a size; return the rows, and how many keys wait."""
    async with rig.database.engine.begin() as connection:
        for table in (Sums.table, readmodel, readmodel_applied, readmodel_held):
            await connection.execute(delete(table))
    await rig.runner(Sums(), batch_size=batch_size, retry_delay=60).drain()
    rows = await rig.rows(Sums.table)
    return {key[1]: dict(row) for key, row in rows.items()}, await rig.count("readmodel_held")


AMOUNTS = st.decimals("-1", "1", places=3).map(str) | st.decimals("-9", "9", places=2).map(str)
EVENTS = st.builds(Paid, st.sampled_from("ab"), AMOUNTS, st.sampled_from(sorted(KIND_OF)))
EVENTS |= st.builds(Set, st.sampled_from("ab"), AMOUNTS, st.sampled_from(sorted(KIND_OF)))


@on(*PROPERTY_BACKENDS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(EVENTS, min_size=1, max_size=8))
async def test_a_batch_comes_to_the_same_as_its_events_one_by_one(
    sums: Rig, events: list[Paid]
) -> None:
    """0.005 three times was 0.02 in one batch and 0.03 in three: nobody said a word.

    And 0.1 as a float was added to floats in one batch, and to what is no float in the next: it failed.
    """
    await sums.clear()
    for event in events:
        await sums.record(event)

    assert await applied(sums, 1) == await applied(sums, 100)


@on_three
@pytest.mark.parametrize("kind", ["decimal", "float"])
@pytest.mark.parametrize("batch_size", [1, 100])
async def test_numbers_of_another_kind_than_their_column_s_are_added_up(
    sums: Rig, kind: str, batch_size: int
) -> None:
    """In batches of one a float met what the column gives back, and the key was held."""
    await sums.record(Set("a", "0", kind))
    await sums.record(*(Paid("a", amount, kind) for amount in ("0.1", "0.2", "0.3")))

    rows, held = await applied(sums, batch_size)

    assert held == 0
    row = rows["a"]
    assert (row["total"], row["fees"]) == (Decimal("0.60"), Decimal("0.70"))
    assert (row["weight"], row["rough"]) == (0.1 + 0.2 + 0.3, pytest.approx(0.6))


@on_asyncpg
@pytest.mark.parametrize("batch_size", [1, 100])
async def test_sums_are_exact_however_many_digits_they_have(sums: Rig, batch_size: int) -> None:
    """Python rounds a sum to 28 digits unless it is told otherwise."""

    class Huge(ReadModel, name="sums", table=Sums.table):
        @on_event(Paid)
        def paid(self, event: Paid) -> Change:
            return Increment(event.account_id, huge=event.number)

    await sums.record(Paid("a", "9" * 30), Paid("a", "0.01"))

    await sums.runner(Huge(), batch_size=batch_size, retry_delay=60).drain()

    rows = await sums.rows(Sums.table)
    assert rows["default", "a"]["huge"] == Decimal("9" * 30 + ".01")


@on_asyncpg
async def test_a_number_with_too_many_places_is_refused_with_the_remedy(sums: Rig) -> None:
    await sums.record(Paid("a", "0.005"), Paid("b", "0.05"))

    rows, held = await applied(sums, 100)

    assert ({key: row["total"] for key, row in rows.items()}, held) == ({"b": Decimal("0.05")}, 1)
    assert (await sums.held())["error_message"] == (
        "sums: total is 0.005, and its column keeps 2 places; round it in the method, or give the "
        "column more places"
    )


def test_what_a_column_keeps_of_a_number() -> None:
    money = places_of(Column("x", Numeric(10, 2)))

    assert (money, places_of(Column("x", Integer)), places_of(Column("x", Float))) == (2, 0, None)
    assert fits(Decimal("1.500"), money)
    assert fits(0.1, money)
    assert fits(7, 0)
    assert fits(2.0, 0)
    assert fits(0.123456, None)
    assert not fits(0.125, money)
    assert not fits(2.5, 0)
    assert not fits(Decimal("NaN"), money)
    assert not fits(float("inf"), money)


def test_a_numeric_without_a_scale_keeps_whole_numbers_and_one_below_zero_keeps_rounder_ones() -> (
    None
):
    """A number in thousands once raised an error of its own, or was rounded when it was an int."""
    kinds = (Numeric(10), Numeric(), Float(53), Numeric(5, -2))

    assert [places_of(Column("x", kind)) for kind in kinds] == [0, None, None, -2]
    assert fits(1200, -2)
    assert fits(Decimal("12E2"), -2)
    assert not fits(1250, -2)
    assert not fits(Decimal(1250), -2)
    assert not fits(0.5, -2)


class Narrow(
    ReadModel,
    name="narrow",
    table=Table(
        "narrow_account",
        METADATA,
        Column("tenant_id", String(64), primary_key=True),
        Column("account_id", String(64), primary_key=True),
        Column("total", REAL),
        Column("points", Numeric(10)),
    ),
):
    @on_event(Paid)
    def paid(self, event: Paid) -> Change:
        return Increment(event.account_id, total=event.number)

    @on_event(Set)
    def set(self, event: Set) -> Change:
        return Upsert(event.account_id, total=event.number, points=event.number)


@on_three
async def test_a_column_of_32_bits_is_not_added_to(sums: Rig) -> None:
    """It gives back another number than it was given: a sum would depend on the size of a batch."""
    await sums.record(Set("a", "2.0"), Paid("a", "0.1", "float"))

    await sums.runner(Narrow(), retry_delay=60).drain()

    assert (await sums.held())["error_message"] == (
        "narrow: total is added to, and its column may give back another number than it was given; "
        "make it a Double or a Numeric"
    )
    assert [row["total"] for row in (await sums.rows(Narrow.table)).values()] == [2.0]


@on_three
async def test_a_numeric_with_a_precision_alone_keeps_whole_numbers(sums: Rig) -> None:
    """PostgreSQL gives it the scale 0: 0.5 three times was 2 in a batch, and 3 one by one."""
    await sums.record(Set("a", "2.5"), Set("b", "2"))

    await sums.runner(Narrow(), retry_delay=60).drain()

    assert "is 2.5, and its column keeps 0 places" in (await sums.held())["error_message"]
    assert [row["points"] for row in (await sums.rows(Narrow.table)).values()] == [2]


def test_which_columns_may_be_added_to() -> None:
    kinds: list[TypeEngine[Any]] = [
        Integer(), Numeric(), Numeric(9, 2), Numeric(asdecimal=False), Float(), Float(53), Double(),
        REAL(), Float(24), Float(asdecimal=True),
    ]  # fmt: skip

    assert [adds_up(Column("x", kind)) for kind in kinds] == [True] * 7 + [False] * 3
