"""The shop's services open so many connections and no more."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from sqlalchemy import AsyncAdaptedQueuePool, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from examples.demo.databases import Database
from examples.shop.common.box import IDLE, OPEN, open_engine

MINE = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pool-of-a-test'")
BACKEND = text("SELECT pg_backend_pid()")


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


@pytest.mark.parametrize(("seconds", "kept"), [(299, True), (301, False)])
async def test_a_connection_is_replaced_when_it_is_five_minutes_old(
    shop_databases: Mapping[str, Database], seconds: int, kept: bool
) -> None:
    engine = open_engine(shop_databases["orders"].owner)

    @event.listens_for(engine.sync_engine, "checkin")
    def grow_old(connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        del connection
        cast("Any", record).starttime -= seconds

    async with engine.connect() as connection:
        first = await connection.scalar(BACKEND)
    async with engine.connect() as connection:
        second = await connection.scalar(BACKEND)
    await engine.dispose()

    assert (second == first) is kept
