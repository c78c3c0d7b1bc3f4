"""Cancelled at any await, a claim and its effect are both there, or neither."""

from itertools import count

import pytest
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox import SqlAlchemyInbox
from pillarbox.schema.tables import inbox
from tests.support.cancelling import Cancel, CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.database import Database, on_postgres
from tests.support.orders import Order

pytestmark = on_postgres

FEWEST_AWAITS = 3  # the claim, the effect, the commit


async def take(sessions: async_sessionmaker[AsyncSession], message_id: str, consumer: str) -> None:
    async with sessions() as session:
        taken = SqlAlchemyInbox(session, consumer=consumer)
        if await taken.claim(message_id, event_type="OrderCreated", payload={"n": 1}):
            await session.execute(insert(Order).values(id=message_id, version=1))
        await session.commit()


@pytest.mark.parametrize("cancel", [on_falling_asleep, on_waking_up])
async def test_a_message_that_is_cancelled_at_any_await_takes_effect_once(
    database: Database, cancel: Cancel
) -> None:
    consumer, taken = cancel.__name__, list[str]()
    for step in count(1):
        message_id = f"m-{step}"
        taken.append(message_id)
        work = take(database.sessions, message_id, consumer)
        cancelled = await run(CancelledAt(work, frozenset({step}), cancel))
        assert await claimed(database, consumer) == sorted(await database.order_ids())

        await take(database.sessions, message_id, consumer)

        assert sorted(await database.order_ids()) == sorted(taken)
        if not cancelled:
            break

    assert step > FEWEST_AWAITS


async def claimed(database: Database, consumer: str) -> list[str]:
    async with database.sessions() as session:
        query = select(inbox.c.message_id).where(inbox.c.consumer == consumer)
        return sorted(await session.scalars(query))
