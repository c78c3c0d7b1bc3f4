"""Cancelled at any await, a unit of work commits all or nothing and leaves nothing open."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from sqlalchemy import event, insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.pool import QueuePool

from pillarbox import NewEvent, SqlAlchemyOutbox, SQLAlchemyUnitOfWork
from tests.support.cancelling import Cancel, CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.database import Database, on, on_postgres
from tests.support.orders import Order
from tests.support.waiting import until


async def place(sessions: async_sessionmaker[AsyncSession], order_id: str) -> None:
    """Do a bit of everything, and commit."""
    async with SQLAlchemyUnitOfWork(sessions) as uow:
        order = Order.place(order_id)
        await uow.repository(Order).save(order)
        await uow.session.flush()
        async with uow.savepoint():
            order.confirm()
            await uow.outbox.add(topic="manual", payload={}, key=order_id)
        await uow.commit()


@dataclass(frozen=True, slots=True)
class Watched:
    """A database under test, and a look at it from outside."""

    database: Database
    observer: AsyncEngine

    async def is_clean(self) -> None:
        """Fail unless all connections are back, none with an open transaction."""
        pool = self.database.engine.pool
        if isinstance(pool, QueuePool):
            assert pool.checkedout() == 0
        if self.database.is_postgres:
            await until(self._no_transaction_is_open, "the end of all transactions")

    async def all_or_nothing(self, order_ids: set[str]) -> None:
        """Fail unless exactly these orders are there, each with all of its events."""
        assert set(await self.database.order_ids()) == order_ids
        keys = sorted(record.key for record in await self.database.events())
        assert keys == sorted([*order_ids] * 3)

    async def _no_transaction_is_open(self) -> bool:
        async with self.observer.connect() as connection:
            result = await connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            )
            return bool(result.scalar_one() == 0)


@pytest.fixture
async def watched(database: Database) -> AsyncIterator[Watched]:
    async with database.other_engine() as observer:
        yield Watched(database, observer)


async def warm(database: Database) -> None:
    """Have a connection wait in the pool."""
    await database.scalar("SELECT 1")


async def cold(database: Database) -> None:
    """Have the pool empty, so that the work begins with a connection."""
    await database.engine.dispose()


@on_postgres
@pytest.mark.parametrize("prepare", [warm, cold])
@pytest.mark.parametrize("cancel", [on_falling_asleep, on_waking_up])
async def test_cancelled_at_any_await(
    watched: Watched,
    cancel: Cancel,
    prepare: Callable[[Database], Coroutine[Any, Any, None]],
) -> None:
    there: set[str] = set()
    for step in count(1):
        await prepare(watched.database)
        order_id = f"o-{step}"
        cancelled = await run(
            CancelledAt(place(watched.database.sessions, order_id), frozenset({step}), cancel)
        )

        await watched.is_clean()
        there |= {order_id} & set(await watched.database.order_ids())
        await watched.all_or_nothing(there)
        if not cancelled:
            break

    assert order_id in there, "the run that was not cancelled has committed"
    assert step > 5, "the work has a number of awaits to be cancelled at"


async def record(engine: AsyncEngine, order_id: str) -> None:
    """Write a row and three events by hand, over a bare connection."""
    async with engine.connect() as connection:
        await connection.execute(insert(Order).values(id=order_id, version=1))
        outbox = SqlAlchemyOutbox(connection)
        await outbox.add_many(NewEvent(topic="manual", payload={}, key=order_id) for _ in "abc")
        await connection.commit()


@on_postgres
@pytest.mark.parametrize("cancel", [on_falling_asleep, on_waking_up])
async def test_a_connection_that_records_by_hand_cancelled_at_any_await(
    watched: Watched, cancel: Cancel
) -> None:
    there: set[str] = set()
    for step in count(1):
        await warm(watched.database)
        order_id = f"o-{step}"
        cancelled = await run(
            CancelledAt(record(watched.database.engine, order_id), frozenset({step}), cancel)
        )

        await watched.is_clean()
        there |= {order_id} & set(await watched.database.order_ids())
        await watched.all_or_nothing(there)
        if not cancelled:
            break

    assert order_id in there


@on_postgres
async def test_cancelled_again_while_it_cleans_up(watched: Watched) -> None:
    there: set[str] = set()
    for step in count(1):
        await warm(watched.database)
        order_id = f"o-{step}"
        steps = frozenset({step, step + 1})
        cancelled = await run(
            CancelledAt(place(watched.database.sessions, order_id), steps, on_falling_asleep)
        )

        await watched.is_clean()
        there |= {order_id} & set(await watched.database.order_ids())
        await watched.all_or_nothing(there)
        if not cancelled:
            break

    assert order_id in there


class Broken(Exception):
    """Raised in the place of a statement."""


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_broken_at_any_statement(watched: Watched) -> None:
    database, left, there = watched.database, 0, set[str]()

    @event.listens_for(database.engine.sync_engine, "before_cursor_execute")
    def break_one(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Broken

    for step in count(1):
        left, order_id = step, f"o-{step}"
        with suppress(Broken):
            await place(database.sessions, order_id)
            there.add(order_id)
        left = 0

        await watched.is_clean()
        await watched.all_or_nothing(there)
        if there:
            break

    assert step > 3
