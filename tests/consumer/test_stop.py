"""Stopping and losing partitions: what runs ends or is rolled back, what is left is given back."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pillarbox.bus.subscription import Revoked
from pillarbox.consumer.context import Context
from pillarbox.errors import BusUnreachable
from tests.consumer.rig import QUICK, Handler, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

ONE_BY_ONE = replace(QUICK, lanes=1, batch_size=1)


class Gate:
    """A handler that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.calls = 0

    def handler(self) -> Handler:
        async def handle(event: dict[str, Any], ctx: Context) -> None:
            self.calls += 1
            await record(event, ctx)
            self.entered.set()
            await self.opened.wait()

        return handle


async def test_a_stop_lets_the_running_transaction_end_and_gives_the_rest_back(shop: Shop) -> None:
    gate = Gate()
    for n in range(5):
        shop.send(f"m{n}", n=n)
    loop = shop.loop(gate.handler(), ONE_BY_ONE)
    running = asyncio.create_task(loop.run_forever())
    await gate.entered.wait()

    loop.stop()
    gate.opened.set()
    await running

    assert await shop.effects() == ["m0"]
    assert gate.calls == 1
    await shop.loop().drain()
    assert await shop.effects() == [f"m{n}" for n in range(5)]
    assert shop.seen.outcomes == {"new": 5}


async def test_a_start_that_fails_leaves_nothing_behind_at_the_broker(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, closed = shop.subscription(), asyncio.Event()

    async def refuse(_: Revoked) -> Sequence[str]:
        raise BusUnreachable("memory://", "not in this test")

    async def close() -> None:
        closed.set()

    monkeypatch.setattr(subscription, "start", refuse)
    monkeypatch.setattr(subscription, "close", close)

    with pytest.raises(BusUnreachable):
        await shop.loop(subscription=subscription).run_forever()

    assert closed.is_set()


async def test_what_takes_too_long_is_rolled_back_and_given_back(shop: Shop) -> None:
    gate = Gate()
    for n in range(3):
        shop.send(f"m{n}", n=n)
    loop = shop.loop(gate.handler(), replace(ONE_BY_ONE, stop_timeout=0.1))
    running = asyncio.create_task(loop.run_forever())
    await gate.entered.wait()

    loop.stop()
    await running

    assert await shop.effects() == []
    assert await shop.count("inbox") == 0
    await shop.loop().drain()
    assert await shop.effects() == ["m0", "m1", "m2"]


async def test_a_second_stop_does_not_wait(shop: Shop) -> None:
    gate = Gate()
    shop.send("m0")
    loop = shop.loop(gate.handler(), replace(ONE_BY_ONE, stop_timeout=60.0))
    running = asyncio.create_task(loop.run_forever())
    await gate.entered.wait()

    loop.stop()
    loop.stop()
    async with asyncio.timeout(30):
        await running

    assert await shop.effects() == []


async def test_a_stop_before_anything_has_begun_ends_at_once(shop: Shop) -> None:
    shop.send("m0")
    loop = shop.loop()

    loop.stop()
    await loop.run_forever()

    assert await shop.effects() == []


async def test_a_message_given_back_was_not_in_the_hands_of_a_process_that_died(
    shop: Shop,
) -> None:
    gate = Gate()
    shop.send("m0")
    first = shop.loop()
    await first.drain()
    shop.bus.redeliver()
    shop.send("m1")
    for _ in range(3):
        loop = shop.loop(gate.handler(), replace(ONE_BY_ONE, stop_timeout=0.1))
        running = asyncio.create_task(loop.run_forever())
        await gate.entered.wait()
        gate.entered.clear()
        loop.stop()
        await running
        # Somebody else may have finished it: then nobody comes to take a row away.
        assert await shop.count("inbox_attempt") == 0

    gate.opened.set()
    await shop.loop(gate.handler()).drain()

    assert await shop.effects() == ["m0", "m1"]
    assert await shop.count("inbox_attempt") == 0
    assert await shop.count("inbox_parked") == 0


async def test_lost_partitions_go_when_nothing_of_them_is_being_done(shop: Shop) -> None:
    gate = Gate()
    for n in range(4):
        shop.send(f"m{n}", n=n)
    subscription = shop.subscription()
    loop = shop.loop(gate.handler(), ONE_BY_ONE, subscription=subscription)
    other = shop.loop()
    async with shop.running(loop):
        await gate.entered.wait()
        async with asyncio.TaskGroup() as group:
            losing = group.create_task(subscription.lose())
            await asyncio.sleep(0)
            assert not losing.done()
            gate.opened.set()
        await until(lambda: shop.effects_are(4), "all are done")
    await other.drain()

    assert await shop.effects() == [f"m{n}" for n in range(4)]


async def test_a_transaction_over_a_lost_partition_is_rolled_back_after_the_limit(
    shop: Shop,
) -> None:
    gate = Gate()
    for n in range(3):
        shop.send(f"m{n}", n=n)
    subscription = shop.subscription()
    loop = shop.loop(gate.handler(), replace(ONE_BY_ONE, hold_limit=0.1), subscription=subscription)
    async with shop.running(loop):
        await gate.entered.wait()
        await subscription.lose()
        assert await shop.effects() == []
        gate.opened.set()
        await until(lambda: shop.effects_are(3), "they came again")

    assert await shop.effects() == ["m0", "m1", "m2"]


async def test_a_member_that_did_not_notice_its_loss_spoils_nothing(shop: Shop) -> None:
    """The old member holds its transaction while the new one has the same messages."""
    gate = Gate()
    for n in range(6):
        shop.send(f"m{n}", n=n)
    subscription = shop.subscription()
    frozen = shop.loop(gate.handler(), replace(ONE_BY_ONE, batch_size=2), subscription=subscription)
    async with shop.running(frozen):
        await gate.entered.wait()
        async with shop.running(shop.loop()):
            await subscription.lose(noticed=False)
            gate.opened.set()
            await until(lambda: shop.effects_are(6), "all are done", limit=20)

    assert await shop.effects() == [f"m{n}" for n in range(6)]
