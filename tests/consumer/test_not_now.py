"""A consumer that stands still as a whole takes its messages back, and counts nothing."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import NotNow, Retry
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

SOON = timedelta(milliseconds=10)
ONCE = replace(QUICK, max_attempts=1, hold_limit=0.001)


class Still:
    """A handler that stands still for so many messages, and asks before that for some time."""

    def __init__(self, times: int, *, first: Exception | None = None) -> None:
        self.left, self.first, self.met = times, first, asyncio.Event()

    async def __call__(self, event: dict[str, Any], ctx: Context) -> None:
        first, self.first = self.first, None
        if first is not None:
            raise first
        if self.left:
            self.left -= 1
            self.met.set()
            raise NotNow(SOON, "in this test")
        await record(event, ctx)


async def test_messages_wait_in_hand_in_their_order_and_no_attempt_is_counted(shop: Shop) -> None:
    for n in range(3):
        shop.send(f"k{n}", key="k", n=n)

    await shop.loop(Still(9), ONCE).drain()

    assert await shop.effects("k") == ["k0", "k1", "k2"]
    assert shop.seen.outcomes == {"new": 3}
    assert await shop.count("inbox_attempt") == 0


async def test_a_waiting_message_that_comes_back_meanwhile_stays_as_it_was(shop: Shop) -> None:
    still = Still(1_000_000, first=Retry(SOON))
    config = replace(ONCE, max_attempts=2)
    shop.send("k0")

    async with shop.running(shop.loop(still, config)):
        await until(lambda: _waits(shop), "it waits in the table")
        await still.met.wait()
    left = await shop.count("inbox_parked", "state = 'waiting' AND attempts = 1")
    marks = await shop.count("inbox_attempt", "started > 0")

    assert (left, marks) == (1, 0)
    assert await shop.effects() == []


async def _waits(shop: Shop) -> bool:
    return await shop.count("inbox_parked", "state = 'waiting'") == 1
