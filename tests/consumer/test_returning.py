"""Messages that wait in the table come back by themselves, in the order of their key."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

TO_TABLE = replace(QUICK, hold_limit=0.001, retry_delay=0.05, retry_delay_max=0.05)


async def test_a_key_moves_to_the_table_and_comes_back_in_order(shop: Shop) -> None:
    healed = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0" and not healed.is_set():
            raise ValueError("not yet")
        await record(event, ctx)

    for n in range(4):
        shop.send(f"k{n}", key="k", n=n)
    shop.send("other", key="other")

    async with shop.running(shop.loop(handler, replace(TO_TABLE, max_attempts=1_000))):
        await until(lambda: _rows(shop, 4), "the key is in the table")
        for n in range(4, 6):
            shop.send(f"k{n}", key="k", n=n)
        await until(lambda: _rows(shop, 6), "later messages are behind it")
        assert await shop.effects() == ["other"]
        assert await shop.count("inbox_parked", "due_at IS NOT NULL") == 1

        healed.set()
        await until(lambda: shop.effects_are(7), "the key has come back")

    assert await shop.effects("k") == [f"k{n}" for n in range(6)]
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def test_a_short_failure_is_held_in_hand_and_touches_no_table(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0" and ctx.attempt < 3:
            raise ValueError("not yet")
        await record(event, ctx)

    for n in range(3):
        shop.send(f"k{n}", key="k", n=n)

    await shop.loop(handler).drain()

    assert await shop.effects("k") == ["k0", "k1", "k2"]
    assert "waiting" not in shop.seen.outcomes
    assert shop.seen.outcomes["failed"] == 2


async def test_a_parked_message_holds_its_key_until_somebody_decides(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0":
            raise ValueError("never")
        await record(event, ctx)

    for n in range(3):
        shop.send(f"k{n}", key="k", n=n)
    shop.send("other", key="other")
    await shop.loop(handler, replace(QUICK, max_attempts=2)).drain()
    shop.send("k3", key="k", n=3)
    await shop.loop(handler, replace(QUICK, max_attempts=2)).drain()

    assert await shop.effects() == ["other"]
    assert await shop.count("inbox_parked", "state = 'parked'") == 1
    assert await shop.count("inbox_parked", "state = 'waiting' AND due_at IS NULL") == 3


async def test_a_parked_message_lets_its_key_pass_if_that_is_the_policy(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0":
            raise ValueError("never")
        await record(event, ctx)

    for n in range(3):
        shop.send(f"k{n}", key="k", n=n)

    await shop.loop(handler, replace(QUICK, max_attempts=2, on_parked="pass")).drain()

    assert await shop.effects() == ["k1", "k2"]
    assert await shop.count("inbox_parked", "holds_key = 0 AND attempts = 2") == 1


async def test_a_waiting_message_that_fails_too_often_is_parked_and_its_key_waits(
    shop: Shop,
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0":
            raise ValueError("never")
        await record(event, ctx)

    for n in range(2):
        shop.send(f"k{n}", key="k", n=n)

    async with shop.running(shop.loop(handler, replace(TO_TABLE, max_attempts=3))):
        await until(lambda: _parked(shop), "it is parked")

    assert shop.seen.came_back == {"failed": 1, "parked": 1}
    assert await shop.count("inbox_parked", "attempts = 3 AND error_class = 'ValueError'") == 1
    assert await shop.effects() == []


async def test_a_waiting_message_that_gives_up_lets_its_key_pass_if_that_is_the_policy(
    shop: Shop,
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "k0":
            raise ValueError("never")
        await record(event, ctx)

    for n in range(3):
        shop.send(f"k{n}", key="k", n=n)

    config = replace(TO_TABLE, max_attempts=3, on_parked="pass")
    async with shop.running(shop.loop(handler, config)):
        await until(lambda: shop.effects_are(2), "the others have passed")

    assert await shop.effects() == ["k1", "k2"]


async def test_a_message_that_waits_and_is_delivered_again_is_there_once(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise Retry(after=timedelta(hours=1))

    shop.send("k0")
    shop.send("k1")
    await shop.loop(handler).drain()

    shop.bus.redeliver()
    await shop.loop(handler).drain()

    assert await shop.count("inbox_parked") == 2
    assert shop.seen.outcomes == {"failed": 1, "waiting": 2, "duplicate": 2}


async def test_a_message_without_a_key_waits_alone(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "a":
            raise Retry(after=timedelta(hours=1))
        await record(event, ctx)

    shop.send("a", key=None)
    shop.send("b", key=None)

    await shop.loop(handler).drain()

    assert await shop.effects() == ["b"]
    assert await shop.count("inbox_parked", "holds_key = 0 AND due_at IS NOT NULL") == 1


async def test_a_wait_beyond_all_times_is_the_handler_s_failure_and_no_end_of_the_loop(
    shop: Shop,
) -> None:
    """No clock has such a time, and the loop ended over it."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "a":
            raise Retry(after=timedelta.max)
        await record(event, ctx)

    shop.send("a", key="a")
    shop.send("b", key="b")

    await shop.loop(handler, replace(QUICK, max_attempts=2)).drain()

    assert await shop.effects() == ["b"]
    assert await shop.count("inbox_parked", "error_message LIKE '%Retry.after%366 days%'") == 1


async def test_two_processes_bring_one_key_back_in_order(shop: Shop) -> None:
    async def wait(event: dict[str, Any], ctx: Context) -> None:
        raise Retry(after=timedelta(seconds=6))

    for key in ("a", "b", "c"):
        for n in range(8):
            shop.send(f"{key}{n}", key=key, n=n)
    await shop.loop(wait).drain()
    assert await shop.count("inbox_parked") == 24
    async with shop.database.engine.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE inbox_parked SET due_at = first_at WHERE due_at IS NOT NULL"
        )

    other = Shop(shop.database)
    async with shop.running(shop.loop()), other.running(other.loop()):
        await until(lambda: shop.effects_are(24), "all have come back", limit=30)

    for key in ("a", "b", "c"):
        assert await shop.effects(key) == [f"{key}{n}" for n in range(8)]


async def _rows(shop: Shop, number: int) -> bool:
    return await shop.count("inbox_parked") == number


async def _parked(shop: Shop) -> bool:
    return await shop.count("inbox_parked", "state = 'parked'") == 1
