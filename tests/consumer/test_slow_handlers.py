"""Slow handlers: a batch is committed in time, however many messages are in it."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.consumer.context import Context
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")

PATIENT = replace(QUICK, lanes=1, hold_limit=60.0, max_attempts=1)
TO_TABLE = replace(QUICK, lanes=1, hold_limit=0.001, retry_delay=0.05, retry_delay_max=0.05)
IDS = [f"m{n}" for n in range(6)]


@dataclass
class SlowHandler:
    """A handler that takes twenty seconds, by a clock of its own; it notes what was committed then."""

    shop: Shop
    seconds: float = 0.0
    called: list[str] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def now(self) -> float:
        return self.seconds

    async def __call__(self, event: dict[str, Any], ctx: Context) -> None:
        self.called.append(ctx.envelope.event_id)
        self.seen.append(len(await self.shop.effects()))
        await record(event, ctx)
        self.seconds += 20.0


@pytest.fixture
def slow(shop: Shop) -> SlowHandler:
    shop.bus = MemoryMessageBus(partitions=1)
    return SlowHandler(shop)


async def test_what_slow_handlers_did_is_committed_after_half_of_the_hold_limit(
    shop: Shop, slow: SlowHandler
) -> None:
    """The whole batch was one transaction: the broker took it back before its end, for ever."""
    for message_id in IDS:
        shop.send(message_id, key=message_id)

    await shop.loop(slow, PATIENT, now=slow.now).drain()

    assert slow.called == IDS
    assert slow.seen == [0, 0, 2, 2, 4, 4]
    assert await shop.effects() == IDS
    assert await shop.count("inbox") == len(IDS)
    assert shop.seen.outcomes == {"new": len(IDS)}


@pytest.mark.parametrize("failing", ["raises", "ends its transaction"])
async def test_so_it_is_with_savepoints_and_one_by_one(
    shop: Shop, slow: SlowHandler, failing: str
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id != "bad":
            return await slow(event, ctx)
        if failing == "raises":
            raise ValueError("in this test")
        return await ctx.session.close()

    for message_id in ("bad", *IDS):
        shop.send(message_id, key=message_id)

    loop = shop.loop(handler, PATIENT, now=slow.now)
    committed: list[int] = []
    shop.seen.at["committed"] = lambda: committed.append(len(set(slow.called)))
    await loop.drain()

    assert committed == [2, 4, 6]
    assert await shop.effects() == IDS
    assert await shop.count("inbox_parked", "message_id = 'bad'") == 1


async def test_messages_that_come_back_together_are_committed_in_time(
    shop: Shop, slow: SlowHandler
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1 and ctx.envelope.event_id == "first":
            raise ValueError("in this test")
        await slow(event, ctx)

    shop.send("first")
    for message_id in IDS:
        shop.send(message_id)

    async with shop.running(shop.loop(handler, TO_TABLE, now=slow.now)):
        await until(lambda: shop.effects_are(len(IDS) + 1), "all have come back")

    assert slow.called == ["first", *IDS]
    assert slow.seen == list(range(len(IDS) + 1))
    assert await shop.effects() == ["first", *IDS]
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0
