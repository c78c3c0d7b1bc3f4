"""A COMMIT that waits for a synchronous standby: giving it up must not end the server's wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from tests.consumer.rig import QUICK, Shop
from tests.support.database import on
from tests.support.standby import CAREFUL, a_commit_waits, absent_standby, is_wanted
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")

IMPATIENT = replace(QUICK, lanes=1, max_attempts=1, database_timeout=1.0)
PATIENT = replace(QUICK, lanes=1, max_attempts=1, stop_timeout=0.1)


@asynccontextmanager
async def careful_sessions(shop: Shop) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    given = CAREFUL[shop.database.url.get_driver_name()]
    async with shop.database.other_engine(connect_args=given) as engine:
        yield async_sessionmaker(engine, expire_on_commit=False)


async def test_a_commit_that_is_given_up_goes_on_waiting_for_its_standby(shop: Shop) -> None:
    """A cancel request ended the wait: the effect was seen, and acknowledged, though one server had it."""

    async def given_up() -> bool:
        return shop.seen.away >= 2

    shop.send("m1")
    async with careful_sessions(shop) as sessions:
        loop = shop.loop(config=IMPATIENT, sessions=sessions)
        async with shop.running(loop):
            async with absent_standby(shop.database):
                await until(lambda: a_commit_waits(shop.database), "the commit waits")
                await until(given_up, "it is given up, and the next try too")

                assert await a_commit_waits(shop.database)
                assert await shop.effects() == []
                assert shop.seen.outcomes == {}

            await until(lambda: _acknowledged(shop), "it has come again")

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox") == 1
    assert await shop.count("inbox_parked") == 0
    assert shop.seen.outcomes == {"duplicate": 1}


async def test_a_stop_during_a_commit_does_not_end_its_wait_for_a_standby(shop: Shop) -> None:
    shop.send("m1")
    async with careful_sessions(shop) as sessions:
        loop = shop.loop(config=PATIENT, sessions=sessions)
        async with absent_standby(shop.database):
            running = asyncio.create_task(loop.run_forever())
            await until(lambda: a_commit_waits(shop.database), "the commit waits")
            loop.stop()
            await running

            assert await a_commit_waits(shop.database)
            assert await shop.effects() == []

    await shop.loop().drain()
    assert await shop.effects() == ["m1"]
    assert shop.seen.outcomes == {"duplicate": 1}


async def _acknowledged(shop: Shop) -> bool:
    return bool(shop.seen.outcomes)


@pytest.fixture(autouse=True)
async def no_standby_is_left_wanted(shop: Shop) -> AsyncIterator[None]:
    yield
    assert await is_wanted(shop.database, "")
