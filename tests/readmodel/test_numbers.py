"""A number that its column would round is refused: a batch must come to what its events come to."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Float, Integer, MetaData, Numeric, String, Table, delete

from pillarbox import DomainEvent
from pillarbox.readmodel.changes import Change, Increment, Upsert
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.definition import on as on_event
from pillarbox.readmodel.numbers import fits, places_of
from pillarbox.schema.tables import readmodel, readmodel_applied, readmodel_held
from tests.readmodel.rig import Rig
from tests.support.database import on

METADATA = MetaData()
on_asyncpg = on("postgres18+asyncpg")


class Paid(DomainEvent):
    aggregate_type = "account"
    account_id: str
    amount: str


class Set(DomainEvent):
    aggregate_type = "account"
    account_id: str
    amount: str


class Sums(
    ReadModel,
    name="sums",
    table=Table(
        "sums_account",
        METADATA,
        Column("tenant_id", String(64), primary_key=True),
        Column("account_id", String(64), primary_key=True),
        Column("total", Numeric(12, 2)),
    ),
):
    @on_event(Paid)
    def paid(self, event: Paid) -> Change:
        return Increment(event.account_id, total=Decimal(event.amount))

    @on_event(Set)
    def set(self, event: Set) -> Change:
        return Upsert(event.account_id, total=Decimal(event.amount))


@pytest.fixture
async def sums(rig: Rig) -> Rig:
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    return rig


async def totals(rig: Rig, batch_size: int) -> tuple[dict[str, Decimal], int]:
    """Apply the log from its beginning, in batches of a size; return the sums, and how many keys wait."""
    async with rig.database.engine.begin() as connection:
        for table in (Sums.table, readmodel, readmodel_applied, readmodel_held):
            await connection.execute(delete(table))
    await rig.runner(Sums(), batch_size=batch_size, retry_delay=60).drain()
    rows = await rig.rows(Sums.table)
    return {key[1]: row["total"] for key, row in rows.items()}, await rig.count("readmodel_held")


AMOUNTS = st.decimals("-1", "1", places=3).map(str) | st.decimals("-9", "9", places=2).map(str)
KINDS = st.sampled_from([Paid, Set])


@on_asyncpg
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(st.tuples(KINDS, st.sampled_from("ab"), AMOUNTS), min_size=1, max_size=8))
async def test_a_batch_comes_to_the_same_as_its_events_one_by_one(
    sums: Rig, events: list[tuple[type[DomainEvent], str, str]]
) -> None:
    """0.005 three times was 0.02 in one batch and 0.03 in three: nobody said a word."""
    await sums.clear()
    for kind, account, amount in events:
        await sums.record(kind(account, amount))

    assert await totals(sums, 1) == await totals(sums, 100)


@on_asyncpg
async def test_a_number_with_too_many_places_is_refused_with_the_remedy(sums: Rig) -> None:
    await sums.record(Paid("a", "0.005"), Paid("b", "0.05"))

    found, held = await totals(sums, 100)

    assert (found, held) == ({"b": Decimal("0.05")}, 1)
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
