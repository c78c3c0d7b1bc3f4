"""Two members with the same messages at once: one effect for each, and no error to anybody."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pillarbox.consumer.context import Context
from pillarbox.consumer.loop import ConsumerLoop
from tests.consumer.rig import QUICK, Shop, record
from tests.inbox.targets import waits_for_a_lock
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

PAIRS = 50
ONE_BY_ONE = replace(QUICK, lanes=1, batch_size=1)


@dataclass
class Member:
    """One of two members, each of its own group: neither knows that the other has the messages."""

    shop: Shop
    begun: int = 0
    other: "Member" = field(init=False)

    async def handler(self, event: dict[str, Any], ctx: Context) -> None:
        """Take effect when the other one has begun with the same message, and waits for its turn."""
        await record(event, ctx)
        await until(self._other_has_begun, "the other has begun with it")
        if self.shop.database.is_postgres:
            await until(lambda: waits_for_a_lock(self.shop.database), "the other waits")

    def loop(self) -> ConsumerLoop:
        self.shop.seen.at["beginning"] = self._begin
        return self.shop.loop(self.handler, ONE_BY_ONE)

    def ended(self) -> int:
        return sum(self.shop.seen.outcomes.values())

    def _begin(self) -> None:
        self.begun += 1

    async def _other_has_begun(self) -> bool:
        return self.other.begun >= self.begun


async def test_fifty_pairs_that_meet_over_a_message_have_one_effect_each_and_no_error(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Member(shop), Member(Shop(shop.database))
    one.other, other.other = other, one

    async def both_ended() -> bool:
        return one.ended() == other.ended() == n + 1

    async with one.shop.running(one.loop()), other.shop.running(other.loop()):
        for n in range(PAIRS):
            for member in (one, other):
                member.shop.send(f"m{n}", n=n)
            await until(both_ended, f"pair {n} has ended")

    assert await shop.effects() == [f"m{n}" for n in range(PAIRS)]
    assert one.begun == other.begun == PAIRS
    only_new_and_duplicate(one.shop, other.shop, caplog)


async def test_two_loops_with_the_same_messages_at_once_have_one_effect_for_each(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    other = Shop(shop.database)
    for n in range(PAIRS):
        for one in (shop, other):
            one.send(f"m{n}", key=f"k{n % 5}", n=n)

    async with asyncio.TaskGroup() as group:
        for one in (shop, other):
            group.create_task(one.loop(config=replace(QUICK, batch_size=3)).drain())

    assert sorted(await shop.effects()) == sorted(f"m{n}" for n in range(PAIRS))
    for key in range(5):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(PAIRS) if n % 5 == key]
    only_new_and_duplicate(shop, other, caplog)


def only_new_and_duplicate(one: Shop, other: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Each message was new to one member and a duplicate to the other; nothing else was said."""
    both = (one.seen.outcomes, other.seen.outcomes)
    assert all(set(found) <= {"new", "duplicate"} for found in both)
    assert sum(found.get("new", 0) for found in both) == PAIRS
    assert sum(found.get("duplicate", 0) for found in both) == PAIRS
    assert [line.message for line in caplog.records if line.levelname != "DEBUG"] == []
