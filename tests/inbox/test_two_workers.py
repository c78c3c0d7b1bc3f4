"""Two workers get the same message at the same time: it takes effect once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pillarbox import InboxMessage, SqlAlchemyInbox
from pillarbox.errors import DuplicateMessage
from tests.inbox.targets import stored, waits_for_a_lock
from tests.support.database import Database, on, on_postgres
from tests.support.orders import Order
from tests.support.waiting import until

PAIRS = 50
DELIVERIES = 20
PAYLOAD = {"total": "9.90"}
everywhere = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
Meeting = Callable[[], Awaitable[object]]
Worker = Callable[[Database, str, str, Meeting], Awaitable[str]]


async def _nobody() -> None:
    """Meet nobody: a second try goes alone."""


async def claims_first(database: Database, message_id: str, name: str, meet: Meeting) -> str:
    async with database.sessions() as session:
        await session.connection()
        await meet()  # both transactions run, and neither has claimed
        if not await SqlAlchemyInbox(session).claim(message_id, event_type="T", payload=PAYLOAD):
            return "duplicate"
        session.add(Order(id=f"{message_id}-{name}"))
        await session.commit()
        return "done"


async def checks_then_marks(database: Database, message_id: str, name: str, meet: Meeting) -> str:
    async with database.sessions() as session:
        inbox = SqlAlchemyInbox(session)
        if await inbox.is_processed(message_id, payload=PAYLOAD):
            return "duplicate"
        await meet()  # both have asked, and neither has marked
        session.add(Order(id=f"{message_id}-{name}"))
        await session.flush()
        await inbox.mark_processed(message_id, "T", PAYLOAD)
        await session.commit()
        return "done"


async def work(
    worker: Worker, database: Database, message_id: str, name: str, meet: Meeting
) -> str:
    """Do as a worker does: a duplicate is rolled back, what SQLite locks out comes again."""
    for _ in range(DELIVERIES):
        try:
            return await worker(database, message_id, name, meet)
        except DuplicateMessage:
            return "rolled back"
        except OperationalError as error:
            if database.is_postgres or "locked" not in str(error):
                raise
            meet = _nobody
    return "given up"


@everywhere
@pytest.mark.parametrize("worker", [claims_first, checks_then_marks])
async def test_one_of_two_takes_effect_each_time(database: Database, worker: Worker) -> None:
    ends: Counter[str] = Counter()

    for pair in range(PAIRS):
        barrier = asyncio.Barrier(2)
        ends.update(
            await asyncio.gather(
                *(work(worker, database, f"m-{pair:02}", name, barrier.wait) for name in "ab")
            )
        )

    expected = [f"m-{pair:02}" for pair in range(PAIRS)]
    assert await stored(database) == expected
    assert [order_id[:-2] for order_id in await database.order_ids()] == expected
    assert ends["done"] == PAIRS
    loser = "rolled back" if worker is checks_then_marks and database.is_postgres else "duplicate"
    assert ends[loser] == PAIRS


@pytest.mark.parametrize(("end", "claimed"), [("commit", False), ("rollback", True)])
@on_postgres
async def test_who_comes_second_waits_for_the_end_of_the_first(
    database: Database, end: str, claimed: bool
) -> None:
    async with database.sessions() as first, database.sessions() as second:
        assert await SqlAlchemyInbox(first).claim("m-1", event_type="T")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(SqlAlchemyInbox(second).claim("m-1", event_type="T"))
            await until(lambda: waits_for_a_lock(database), "the second waits")
            assert not waiting.done()
            await getattr(first, end)()

        assert waiting.result() is claimed


@pytest.mark.parametrize("consumer", ["default", "mail"])
@on_postgres
async def test_another_consumer_does_not_wait(database: Database, consumer: str) -> None:
    async with database.sessions() as first, database.sessions() as second:
        await SqlAlchemyInbox(first, consumer="payments").claim("m-1", event_type="T")
        await second.execute(text("SET LOCAL lock_timeout = '2s'"))

        assert await SqlAlchemyInbox(second, consumer=consumer).claim("m-1", event_type="T")


async def claims_batch(database: Database, ids: list[str], meet: Meeting) -> set[object]:
    async with database.sessions() as session:
        await session.connection()
        await meet()
        batch = [InboxMessage(message_id=one, event_type="T") for one in ids]
        new = await SqlAlchemyInbox(session).claim_many(batch)
        session.add_all(Order(id=f"{one}") for one in new)
        await session.commit()
        return set(new)


@everywhere
async def test_two_batches_in_opposite_orders_do_not_deadlock(database: Database) -> None:
    for pair in range(20):
        ids = [f"m-{pair:02}-{n:02}" for n in range(40)]
        barrier = asyncio.Barrier(2)

        one, other = await asyncio.gather(
            claims_batch(database, ids, barrier.wait),
            claims_batch(database, ids[::-1], barrier.wait),
        )

        assert not one & other
        assert one | other == set(ids)
