"""Waiting messages that two processes take one after the other: the later one has them."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer.context import Context
from pillarbox.consumer.returning import Returning, Taken
from tests.consumer.rig import CONSUMER, Handler, Shop, record
from tests.consumer.test_turnstile import settle
from tests.consumer.test_unfinished_returns import TO_TABLE, into_table
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

_DIED_ONCE = text(
    "INSERT INTO inbox_attempt (tenant_id, consumer, message_id, started, alone)"
    f" VALUES ('default', '{CONSUMER}', 'k0', 1, 0)"
)


@dataclass
class MovedClock:
    """The clock of all processes, which stands until it is moved."""

    time: datetime = field(default_factory=lambda: SYSTEM_CLOCK.now() + timedelta(minutes=1))

    def now(self) -> datetime:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def process(shop: Shop, clock: MovedClock, handler: Handler = record) -> Returning:
    """Return what brings messages back in a process of its own."""
    return shop.loop(handler, TO_TABLE, clock=clock)._chores._returning


async def taken_by(returning: Returning) -> Taken:
    taken = await returning.take(None)
    assert taken is not None
    assert taken.pairs
    return taken


async def one_died_over_it(shop: Shop) -> None:
    await into_table(shop, "k0")
    async with shop.database.engine.begin() as connection:
        await connection.execute(_DIED_ONCE)


async def test_whoever_waits_to_be_alone_is_not_overtaken_for_a_minute(
    shop: Shop, clock: MovedClock
) -> None:
    """Two processes with slow handlers could overtake each other for ever."""
    await one_died_over_it(shop)
    first, second = process(shop, clock), process(shop, clock)
    taken = await taken_by(first)
    clock.move(50)

    found = await second.take(None)
    begun = await first._begin_alone(taken)

    assert taken.alone
    assert found is None
    assert begun.pairs


async def test_a_message_that_has_a_process_for_itself_is_not_due_for_others(
    shop: Shop, clock: MovedClock
) -> None:
    """It was due from the time when it was taken, and parked as if two processes had died."""
    await one_died_over_it(shop)
    first, second = process(shop, clock), process(shop, clock)
    taken = await taken_by(first)
    clock.move(4)
    begun = await first._begin_alone(taken)
    clock.move(4)

    found = await second.take(None)
    finished = await first._finish(begun)

    assert taken.alone
    assert found is None
    assert finished
    assert await shop.effects() == ["k0"]
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def test_who_waits_too_long_for_its_turn_leaves_a_message_to_the_one_who_has_it(
    shop: Shop, clock: MovedClock
) -> None:
    """The mark of the other one, which lived, passed for that of a second one that had died."""
    await one_died_over_it(shop)
    first, second = process(shop, clock), process(shop, clock)
    waited = await taken_by(first)
    clock.move(61)
    taken = await taken_by(second)
    begun = await second._begin_alone(taken)

    await first.bring_back(waited)
    finished = await second._finish(begun)

    assert waited.alone
    assert taken.alone
    assert finished
    assert await shop.effects() == ["k0"]
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def test_what_is_taken_does_not_wait_behind_one_that_must_be_alone(
    shop: Shop, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time ran out at the gate, and its mark passed for that of a process that had died."""
    await into_table(shop, "k0")
    loop = shop.loop(record, TO_TABLE, clock=clock)
    marked: list[int] = []
    take = Returning.take

    async def be_alone() -> None:
        async with loop._around.turnstile.alone():
            marked.append(await shop.count("inbox_attempt"))

    async with asyncio.TaskGroup() as group:

        async def take_before_somebody(self: Returning, tenant_id: str | None) -> Taken | None:
            taken = await take(self, tenant_id)
            if taken is not None:
                group.create_task(be_alone())
                await settle()
            return taken

        monkeypatch.setattr(Returning, "take", take_before_somebody)
        await loop._chores.bring_back()

    assert marked == [0]
    assert await shop.effects() == ["k0"]


async def test_a_try_that_another_process_has_made_meanwhile_is_not_made_again_at_once(
    shop: Shop, clock: MovedClock
) -> None:
    """It was made without a pause, and of the two only one was counted."""
    await into_table(shop, "k0")
    tries: list[int] = []

    async def fail(event: dict[str, Any], ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise ValueError("in this test")

    first, second = process(shop, clock, fail), process(shop, clock, fail)
    overtaken = await taken_by(first)
    clock.move(6)
    await second.bring_back(await taken_by(second))

    await first.bring_back(overtaken)

    before = overtaken.head.attempts
    assert tries == [before + 1]
    assert await shop.count("inbox_parked", f"attempts = {before + 1}") == 1


async def test_messages_behind_one_that_was_overtaken_are_not_blamed(
    shop: Shop, clock: MovedClock
) -> None:
    await into_table(shop, "k0", "k1", "k2")
    async with shop.database.engine.begin() as connection:
        await connection.execute(text("UPDATE inbox_parked SET attempts = 0"))
    first, second = process(shop, clock), process(shop, clock)
    overtaken = await taken_by(first)
    clock.move(6)
    taken = await taken_by(second)

    await first.bring_back(overtaken)
    await first.give_back()
    marked = await shop.count("inbox_attempt")
    await second.bring_back(taken)
    await second.bring_back(await taken_by(second))

    assert len(overtaken.pairs) == 3
    assert marked == 1
    assert await shop.effects() == ["k0", "k1", "k2"]
    assert await shop.count("inbox_attempt") == 0
