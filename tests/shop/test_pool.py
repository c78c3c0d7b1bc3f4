"""The shop's services open so many connections and no more."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import AsyncAdaptedQueuePool, text

from examples.demo.databases import Database
from examples.shop.common.box import IDLE, OPEN, open_engine

MINE = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pool-of-a-test'")


async def test_a_service_opens_twenty_connections_and_keeps_ten(
    shop_databases: Mapping[str, Database],
) -> None:
    url = f"{shop_databases['orders'].owner}?application_name=pool-of-a-test"
    engine = open_engine(url)
    async with AsyncExitStack() as held:
        opened = [await held.enter_async_context(engine.connect()) for _ in range(OPEN)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.connect().start(), 0.2)
        there = await opened[0].scalar(MINE)
    pool = engine.pool
    assert isinstance(pool, AsyncAdaptedQueuePool)
    kept = pool.checkedin()
    await engine.dispose()

    assert (there, kept) == (OPEN, IDLE) == (20, 10)
