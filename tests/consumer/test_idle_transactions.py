"""What the server ends because it took too long is not the message's fault, unless it is."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from pillarbox.consumer.context import Context
from pillarbox.consumer.transactions import DatabaseAway, Transactions
from pillarbox.inbox.inbox import SqlAlchemyInbox
from pillarbox.inbox.message import InboxMessage
from tests.consumer.rig import CONSUMER, QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")


async def test_a_transaction_that_was_idle_too_long_is_the_database_s_doing(shop: Shop) -> None:
    async def ended(server_process: int) -> bool:
        return not await shop.count("pg_stat_activity", f"pid = {server_process}")

    with pytest.raises(DatabaseAway):  # noqa: PT012 - the commit at the end of the block raises
        async with Transactions(shop.database.sessions).begin(None) as session:
            own = await session.scalar(text("SELECT pg_backend_pid()"))
            await session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
            await until(lambda: ended(own), "the server has ended the transaction")


@pytest.fixture
async def hurried(shop: Shop) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    """Sessions whose statements may take a tenth of a second."""
    by_psycopg = {"options": "-c statement_timeout=100"}
    by_asyncpg = {"server_settings": {"statement_timeout": "100"}}
    told = by_asyncpg if "asyncpg" in shop.database.url.drivername else by_psycopg
    engine = create_async_engine(shop.database.url, connect_args=told)
    yield async_sessionmaker(engine)
    await engine.dispose()


async def test_a_claim_that_waits_for_another_process_too_long_is_no_attempt(
    shop: Shop, hurried: async_sessionmaker[AsyncSession]
) -> None:
    """The server cancelled our own statement, and an innocent message was parked for it."""
    shop.send("m1")
    config = replace(QUICK, max_attempts=1)

    async def noticed() -> bool:
        return shop.seen.away > 1

    async with shop.database.sessions() as other:
        inbox = SqlAlchemyInbox(other, "default", consumer=CONSUMER)
        await inbox.claim_many([InboxMessage(message_id="m1", event_type="OrderCreated")])
        async with shop.running(shop.loop(config=config, sessions=hurried)):
            await until(noticed, "the server has cancelled the claim")
            await other.rollback()
            await until(lambda: shop.effects_are(1), "it has taken effect")

    assert await shop.count("inbox_parked") == 0


async def test_a_statement_of_a_handler_that_takes_too_long_is_an_attempt(
    shop: Shop, hurried: async_sessionmaker[AsyncSession]
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "slow":
            await ctx.session.execute(text("SELECT pg_sleep(30)"))
        await record(event, ctx)

    shop.send("slow", key="a")
    shop.send("good", key="b")

    await shop.loop(handler, replace(QUICK, max_attempts=2, lanes=1), sessions=hurried).drain()

    assert await shop.effects() == ["good"]
    assert await shop.count("inbox_parked", "message_id = 'slow' AND attempts = 2") == 1
