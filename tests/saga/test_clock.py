"""Timers are due by the clock of the database, one after another, whatever clock a process has."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox import Pillarbox, Saga, step
from pillarbox.saga.observer import SagaObserver
from tests.saga.shop import (
    QUICK,
    Charge,
    OrderCreated,
    PaymentProcessed,
    Shop,
    careful_order,
    quiet_bus,
)
from tests.support.database import Database, on

WAIT, SPREAD = timedelta(minutes=5), timedelta(seconds=30)
OFF = {
    "an hour behind the database": timedelta(hours=1),
    "an hour ahead of the database": timedelta(hours=-1),
}
# Functions that stand before those of the system in the search path of the sessions under test.
CLOCKS = ("statement_timestamp", "transaction_timestamp", "clock_timestamp", "now")


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a database, for the sessions of `database`."""

    database: Database

    async def show(self, off: timedelta) -> None:
        """Go by that much more than the machine's clock, which is also that of this process."""
        async with self.database.engine.begin() as connection:
            await connection.execute(text("UPDATE other.clock SET off = :off"), {"off": off})

    async def now(self) -> datetime:
        found: datetime = await self.database.scalar("SELECT statement_timestamp()")
        return found


@asynccontextmanager
async def clock_of(database: Database) -> AsyncIterator[Clock]:
    """Give a database a clock of its own; nothing but sessions made here looks at it."""
    async with database.engine.begin() as connection:
        await connection.exec_driver_sql("CREATE SCHEMA other")
        await connection.exec_driver_sql("CREATE TABLE other.clock (off interval NOT NULL)")
        await connection.exec_driver_sql("INSERT INTO other.clock VALUES ('0')")
        for name in CLOCKS:
            body = f"SELECT pg_catalog.{name}() + off FROM other.clock"
            await connection.exec_driver_sql(
                f"CREATE FUNCTION other.{name}() RETURNS timestamptz STABLE LANGUAGE sql AS '{body}'"
            )
    path = {"server_settings": {"search_path": "public, other, pg_catalog"}}
    try:
        async with database.other_engine(connect_args=path) as engine:
            sessions = async_sessionmaker(engine, expire_on_commit=False)
            yield Clock(replace(database, engine=engine, sessions=sessions))
    finally:
        async with database.engine.begin() as connection:
            await connection.exec_driver_sql("DROP SCHEMA other CASCADE")


@on("postgres18+asyncpg")
@pytest.mark.parametrize("off", OFF.values(), ids=OFF)
async def test_a_timer_rings_when_the_database_says_so_however_wrong_the_clock_of_the_process_is(
    database: Database, off: timedelta
) -> None:
    outside = Shop(database, careful_order)
    await outside.clear()
    await outside.order("o-1")
    await outside.publish()
    async with clock_of(database) as clock:
        shop = Shop(clock.database, careful_order, outside.bus)
        await clock.show(off)
        began = await clock.now()
        await shop.saga.drain()
        started, ended = await shop.row(), await clock.now()

        await clock.show(off + WAIT - timedelta(minutes=1))
        await shop.saga.drain()
        before = list(shop.heard.batches)
        await clock.show(off + WAIT + timedelta(minutes=1))
        await shop.saga.drain()

        row = await shop.row()
    assert before == []
    assert shop.heard.batches == [1]
    assert began <= started.started_at <= started.changed_at <= ended
    assert WAIT <= started.due_at - started.changed_at <= WAIT + SPREAD
    assert (row.state, row.step, row.tries) == ("RUNNING", "reserve", 2)


def with_other_steps(box: Pillarbox, observer: SagaObserver) -> None:
    """A definition with which no saga of the careful one can go on."""

    class OtherOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
        charge = step(send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed)

    box.saga(OtherOrder, config=QUICK, observer=observer)


@on("postgres18+asyncpg")
@pytest.mark.parametrize("off", OFF.values(), ids=OFF)
async def test_sagas_that_cannot_go_on_here_are_put_off_by_the_clock_of_the_database_and_spread(
    database: Database, off: timedelta
) -> None:
    outside = Shop(database, careful_order)
    await outside.clear()
    await outside.order(*(f"o-{n}" for n in range(40)))
    await outside.saga_works()
    await outside.time_passes()
    async with clock_of(database) as clock:
        shop = Shop(clock.database, with_other_steps, quiet_bus())
        await clock.show(off)

        async with asyncio.timeout(60):  # by another clock some would be due again and again
            await shop.saga.drain()

    rows = await outside.rows()
    assert {row.error_class for row in rows} == {"SagaChanged"}
    later = sorted(row.due_at - row.changed_at for row in rows)
    assert timedelta(seconds=30) <= later[0] < later[-1] <= timedelta(seconds=33)
    assert later[-1] - later[0] > timedelta(seconds=1.5)


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_the_timers_of_sagas_that_start_together_are_spread_evenly(
    database: Database,
) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    await shop.order(*(f"o-{n}" for n in range(120)))

    await shop.saga_works()

    later = sorted(row.due_at - row.changed_at - WAIT for row in await shop.rows())
    assert timedelta(0) <= later[0] < later[-1] <= SPREAD
    assert later[-1] - later[0] > SPREAD * 2 / 3
    thirds = Counter(min(each // (SPREAD / 3), 2) for each in later)
    assert min(thirds[third] for third in range(3)) > 15  # about 40 in each
