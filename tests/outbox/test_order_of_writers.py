"""Writers of one key draw their numbers in the order in which they commit, whatever they write."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from sqlalchemy import text
from sqlalchemy.orm.exc import StaleDataError

from pillarbox import NewEvent, SqlAlchemyOutbox, SQLAlchemyUnitOfWork
from pillarbox.outbox import write
from pillarbox.outbox.locks import MAX_KEY_LOCKS
from tests.support.database import Database, on_postgres
from tests.support.orders import Order, Plan
from tests.support.waiting import until

pytestmark = on_postgres
Writer = Callable[[Database, random.Random], Awaitable[None]]

ROUNDS = 25
KEYS = ("k-1", "k-2")

# Within one key, rows in the order of their numbers with the time of their commit. The time is
# taken before a committing transaction gives its locks back, so a successor's is never earlier.
COMMITS = text(
    "SELECT key, pg_xact_commit_timestamp(CAST(CAST(txid AS text) AS xid)) AS committed"
    " FROM outbox ORDER BY key, seq"
)
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def broken_pairs(database: Database) -> int:
    """Count neighbours of one key whose numbers and commits disagree; equal times prove nothing."""
    async with database.engine.connect() as connection:
        rows = (await connection.execute(COMMITS)).all()
    return sum(1 for a, b in pairwise(rows) if a.key == b.key and b.committed < a.committed)


async def linger(outbox: SqlAlchemyOutbox, rng: random.Random) -> None:
    """Half of the time, leave a gap between the insert and the commit."""
    if rng.random() < 0.5:
        await outbox.flush()
        await asyncio.sleep(rng.random() * 0.004)


async def by_session(database: Database, rng: random.Random) -> None:
    async with database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        await outbox.add(topic="manual", payload={}, key=rng.choice(KEYS))
        await linger(outbox, rng)
        await session.commit()


async def by_connection(database: Database, rng: random.Random) -> None:
    async with database.engine.connect() as connection:
        outbox = SqlAlchemyOutbox(connection)
        await outbox.add(topic="manual", payload={}, key=rng.choice(KEYS))
        await linger(outbox, rng)
        await connection.commit()


async def by_plain_object(database: Database, rng: random.Random) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        plan = Plan(rng.choice(KEYS))
        plan.note("no row changes")
        uow.track(plan)
        await linger(uow.outbox, rng)
        await uow.commit()


async def by_aggregate(database: Database, rng: random.Random) -> None:
    """Raise an event without any change; try again when another was first."""
    key = rng.choice(KEYS)
    for _ in range(100):
        try:
            async with SQLAlchemyUnitOfWork(database.sessions) as uow:
                (await uow.session.get_one(Order, key)).note("no column changes")
                await uow.commit()
        except StaleDataError:
            continue
        return
    raise AssertionError("overtaken a hundred times")


async def by_bulk(database: Database, rng: random.Random) -> None:
    """Write more keys than locks are taken for, the contested ones among them."""
    keys = [*KEYS, *(f"bulk-{number}" for number in range(MAX_KEY_LOCKS))]
    async with database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        await outbox.add_many(NewEvent(topic="bulk", payload={}, key=key) for key in keys)
        await linger(outbox, rng)
        await session.commit()


async def race(database: Database, writers: Sequence[Writer]) -> None:
    async def repeat(number: int, writer: Writer) -> None:
        rng = random.Random(number)
        for _ in range(ROUNDS):
            await writer(database, rng)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number, writer in enumerate(writers):
            group.create_task(repeat(number, writer))


@pytest.fixture(autouse=True)
async def orders(database: Database) -> None:
    async with database.sessions.begin() as session:
        session.add_all(Order(id=key) for key in KEYS)


@pytest.mark.parametrize(
    "writers",
    [
        pytest.param([by_session, by_session, by_connection, by_connection], id="manual"),
        pytest.param([by_plain_object] * 3, id="plain objects"),
        pytest.param([by_aggregate] * 3, id="aggregates"),
        pytest.param([by_session, by_aggregate, by_plain_object, by_connection], id="a mix"),
        pytest.param([by_bulk, by_bulk, by_session, by_aggregate], id="bulk and single"),
    ],
)
async def test_the_order_of_rows_is_the_order_of_commits(
    database: Database, writers: Sequence[Writer]
) -> None:
    await race(database, writers)

    per_round = sum(MAX_KEY_LOCKS + 2 if w is by_bulk else 1 for w in writers)
    assert await database.count() == ROUNDS * per_round
    assert await broken_pairs(database) == 0


async def test_several_keys_in_any_order_do_not_deadlock(database: Database) -> None:
    async def several(database: Database, rng: random.Random) -> None:
        keys = rng.sample(range(6), 4)
        async with database.sessions() as session:
            outbox = SqlAlchemyOutbox(session)
            for key in keys:
                await outbox.add(topic="manual", payload={}, key=key)
            await session.commit()

    await race(database, [several] * 4)

    assert await database.count() == ROUNDS * 4 * 4
    assert await broken_pairs(database) == 0


async def open_two_and_commit_the_second_first(database: Database) -> None:
    """Insert in one transaction, and commit another of the same key while the first is open."""
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(database.sessions()) for _ in ("first", "second")
        ]
        for session in (first, second):
            await SqlAlchemyOutbox(session).add(topic="manual", payload={}, key="k-1")
        await SqlAlchemyOutbox(first).flush()
        overtaking = asyncio.create_task(second.commit())
        await until(lambda: blocked_or_done(database, overtaking), "the second to wait or to end")
        await first.commit()
        await overtaking


async def blocked_or_done(database: Database, task: asyncio.Task[None]) -> bool:
    return task.done() or bool(await database.scalar(WAITING))


async def test_a_second_writer_of_a_key_waits_for_the_first(database: Database) -> None:
    await open_two_and_commit_the_second_first(database)

    assert await database.count() == 2
    assert await broken_pairs(database) == 0


async def test_control_without_the_lock_the_same_steps_break_the_order(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "locks_for", lambda _: [])

    await open_two_and_commit_the_second_first(database)

    assert await database.count() == 2
    assert await broken_pairs(database) == 1


async def test_writers_of_different_keys_do_not_wait_for_one_another(database: Database) -> None:
    async with database.sessions() as first, database.sessions() as second:
        await SqlAlchemyOutbox(first).add(topic="manual", payload={}, key="k-1")
        await SqlAlchemyOutbox(first).flush()
        await SqlAlchemyOutbox(second).add(topic="manual", payload={}, key="k-2")
        await asyncio.wait_for(second.commit(), 10)
        await first.commit()

    assert await database.count() == 2


async def test_unordered_events_take_no_lock(database: Database) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(topic="manual", payload={})
        await SqlAlchemyOutbox(session).flush()
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"

        assert await database.scalar(held) == 0
        await session.rollback()


async def test_a_bulk_takes_one_lock_for_all_its_keys(database: Database) -> None:
    async with database.sessions() as session:
        outbox = SqlAlchemyOutbox(session)
        await outbox.add_many(
            NewEvent(topic="bulk", payload={}, key=number) for number in range(1000)
        )
        await outbox.flush()
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"

        assert await database.scalar(held) == 1
        await session.rollback()
