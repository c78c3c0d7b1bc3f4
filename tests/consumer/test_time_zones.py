"""A server whose time zone has a repeated hour: between two zones, its times equal nothing."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from pillarbox.schema.types import UtcTime
from tests.consumer.rig import Shop, record
from tests.consumer.test_overtaken_returns import MovedClock
from tests.support.database import on

TIMES = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
BERLIN = "Europe/Berlin"

both_times = pytest.mark.parametrize("time", TIMES, ids=["first half past two", "second"])


@both_times
def test_a_time_of_the_repeated_hour_is_read_as_utc(time: datetime) -> None:
    """Python has no such time equal itself in another zone (PEP 495)."""
    read = UtcTime().process_result_value(time.astimezone(ZoneInfo(BERLIN)), DefaultDialect())

    assert read == time


@both_times
@on("postgres18+psycopg")
async def test_a_message_that_waits_comes_back_in_the_repeated_hour(
    shop: Shop, time: datetime
) -> None:
    """The row's time was not the one that had been written: somebody else passed for its taker."""
    clock = MovedClock(time - timedelta(minutes=1))

    async def fail_once(event: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry(after=timedelta(minutes=1))
        await record(event, ctx)

    shop.send("m1")
    given = {"options": f"-c TimeZone={BERLIN}"}
    async with shop.database.other_engine(connect_args=given) as engine:
        loop = shop.loop(fail_once, clock=clock, sessions=async_sessionmaker(engine))
        await loop.drain()
        assert await shop.count("inbox_parked", "due_at IS NOT NULL") == 1

        clock.move(60)
        async with asyncio.timeout(20):
            await loop.drain()

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0
