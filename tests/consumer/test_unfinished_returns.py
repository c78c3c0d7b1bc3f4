"""Waiting messages that are begun with and not finished: nobody is blamed, and no order is lost."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.context import Context
from pillarbox.consumer.known import Seen
from pillarbox.consumer.parked import ParkedMessages
from pillarbox.consumer.signals import Retry
from pillarbox.ops import ParkedFilter, ParkedOps
from tests.consumer.rig import CONSUMER, QUICK, Handler, Shop, record
from tests.support.database import on, on_postgres
from tests.support.waiting import until

TO_TABLE = replace(QUICK, hold_limit=0.001, max_crashes=2)
SOON = timedelta(milliseconds=10)


async def into_table(shop: Shop, *message_ids: str) -> None:
    """Have messages of one key wait in the table, the first of them due in a moment."""

    async def ask_to_wait(event: dict[str, Any]) -> None:
        raise Retry(after=SOON)

    for message_id in message_ids:
        shop.send(message_id)
    loop = shop.loop(ask_to_wait, replace(TO_TABLE, look_every=60.0))
    async with shop.running(loop):
        await until(lambda: _rows(shop, len(message_ids)), "they are in the table")


async def _rows(shop: Shop, number: int) -> bool:
    return await shop.count("inbox_parked") == number


@on_postgres
async def test_a_database_that_goes_away_under_a_waiting_message_is_not_the_message_s_fault(
    shop: Shop,
) -> None:
    await into_table(shop, "k0", "k1")
    cuts = 4
    cut: list[str] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if len(cut) < cuts:
            cut.append(ctx.envelope.event_id)
            await ctx.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        await record(event, ctx)

    async with shop.running(shop.loop(handler, TO_TABLE)):
        await until(lambda: shop.effects_are(2), "both have come back")

    assert cut == ["k0"] * cuts
    assert await shop.effects() == ["k0", "k1"]
    assert await shop.count("inbox_attempt") == 0
    assert await shop.count("inbox_parked") == 0


@on("postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_stop_while_a_message_comes_back_is_no_crash(shop: Shop) -> None:
    await into_table(shop, "k0", "k1", "k2")

    for _ in range(3):
        entered = asyncio.Event()
        loop = shop.loop(_for_ever(entered), replace(TO_TABLE, stop_timeout=0.1))
        running = asyncio.create_task(loop.run_forever())
        await entered.wait()
        loop.stop()
        await running
        assert await shop.count("inbox_attempt") == 0

    async with shop.running(shop.loop(config=TO_TABLE)):
        await until(lambda: shop.effects_are(3), "they have come back")
    assert await shop.effects() == ["k0", "k1", "k2"]
    assert await shop.count("inbox_parked") == 0


@on("postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_waiting_message_that_killed_processes_is_tried_when_it_is_redriven(
    shop: Shop,
) -> None:
    await into_table(shop, "k0")
    async with shop.database.engine.begin() as connection:
        await connection.execute(_DIED_TWICE)

    async with shop.running(shop.loop(config=TO_TABLE)):
        await until(lambda: _crashed(shop), "it is parked")
    ops = ParkedOps(shop.database.engine, actor="jane")
    await ops.redrive_all(ParkedFilter(reason="crashed"), reason="the handler is mended")
    async with shop.running(shop.loop(config=TO_TABLE)):
        await until(lambda: shop.effects_are(1), "it has come back")

    assert await shop.count("inbox_attempt") == 0
    assert await shop.count("inbox_parked") == 0


_DIED_TWICE = text(
    "INSERT INTO inbox_attempt (tenant_id, consumer, message_id, started, alone)"
    f" VALUES ('default', '{CONSUMER}', 'k0', 2, 1)"
)


async def _crashed(shop: Shop) -> bool:
    return await shop.count("inbox_parked", "state = 'parked' AND reason = 'crashed'") == 1


def _for_ever(entered: asyncio.Event) -> Handler:
    async def handle(event: dict[str, Any]) -> None:
        entered.set()
        await asyncio.Event().wait()

    return handle


class Quiet(MemorySubscription):
    """Tell when nothing has come."""

    silent: asyncio.Event

    async def receive(self, most: int) -> Sequence[Delivery]:
        came = await super().receive(most)
        if not came:
            self.silent.set()
        return came


@on_postgres
async def test_a_drain_does_not_end_while_a_message_comes_back(shop: Shop) -> None:
    await into_table(shop, "k0", "k1")
    quiet = Quiet(shop.subscription()._group)
    quiet.silent = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await quiet.silent.wait()
        await record(event, ctx)

    await shop.loop(handler, TO_TABLE, subscription=quiet).drain()

    assert await shop.effects() == ["k0", "k1"]


@on_postgres
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_message_that_another_member_sets_aside_meanwhile_keeps_its_place(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Around the question of a batch, a member that lost its partition moves its first message.

    It holds up its key, or, when the batch has not seen it go, takes effect first and only once.
    """
    for n in range(2):
        shop.send(f"k{n}", n=n)
    await deliver_again(shop)
    other = Shop(shop.database)
    other.send("k0")
    asked: list[int] = []

    async def ask_to_wait(event: dict[str, Any]) -> None:
        raise Retry(after=timedelta(hours=1))

    async def set_aside() -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            await other.loop(ask_to_wait).drain()

    question = ParkedMessages.look_up

    async def ask(self: ParkedMessages, *given: Any) -> Seen:
        if not late:
            await set_aside()
        found = await question(self, *given)
        if late:
            await set_aside()
        return found

    monkeypatch.setattr(ParkedMessages, "look_up", ask)

    await shop.loop().drain()

    assert await shop.effects() == (["k0", "k1"] if late else [])
    assert await shop.count("inbox_parked", "message_id = 'k0'") == 1
    assert await shop.count("inbox_parked", "message_id = 'k1'") == (0 if late else 1)
    async with shop.database.engine.begin() as connection:
        await connection.execute(text("UPDATE inbox_parked SET due_at = now() WHERE seq ="
                                      " (SELECT min(seq) FROM inbox_parked)"))  # fmt: skip

    await shop.loop().drain()

    assert await shop.effects() == ["k0", "k1"]
    assert await shop.count("inbox_parked") == 0


async def deliver_again(shop: Shop) -> None:
    """Have a member take what waits, and leave without having done anything."""
    member = shop.subscription()
    await member.start(_nothing)
    taken = await member.receive(10)
    assert taken
    await member.give_back(taken)
    await member.close()


async def _nothing(partitions: Collection[str]) -> None:
    del partitions
