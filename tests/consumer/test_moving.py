"""Messages on their way from hand to the table keep the order of their key, whatever fails."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer import lane_runner
from pillarbox.consumer.aside import move
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.event.incoming import ReadingRules
from pillarbox.schema.tables import inbox_parked
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")


async def wait_long(event: dict[str, Any], ctx: Context) -> None:
    raise Retry(after=timedelta(hours=1))


async def away() -> bool:
    raise DatabaseAway(OSError("the database went away"))


async def gone_meanwhile() -> bool:
    return False


async def order_in_the_table(shop: Shop) -> list[str]:
    columns = inbox_parked.c
    async with shop.database.engine.connect() as connection:
        found = await connection.scalars(select(columns.message_id).order_by(columns.seq))
        return list(found)


OF_ACME = ReadingRules(proven_tenant=lambda _: "acme")


async def three_wait_and_are_due(shop: Shop) -> None:
    for n in range(3):
        shop.send(f"m{n}")
    await shop.loop(wait_long).drain()
    due = inbox_parked.c.due_at
    async with shop.database.engine.begin() as connection:
        await connection.execute(
            update(inbox_parked).where(due.is_not(None)).values(due_at=SYSTEM_CLOCK.now())
        )


async def test_messages_that_name_another_tenant_by_now_go_there_one_after_the_other(
    shop: Shop,
) -> None:
    """The first went, and those behind it waited for ever."""
    await three_wait_and_are_due(shop)

    await shop.loop(record, rules=OF_ACME).drain()

    assert await shop.effects() == ["m0", "m1", "m2"]
    assert await shop.count("inbox", "tenant_id = 'acme'") == 3
    assert await shop.count("inbox_parked") == 0


async def test_messages_that_go_to_another_tenant_hold_their_key_there(shop: Shop) -> None:
    """The first waited there without its key, and was passed."""
    await three_wait_and_are_due(shop)

    await shop.loop(wait_long, rules=OF_ACME).drain()

    assert await order_in_the_table(shop) == ["m0", "m1", "m2"]
    assert await shop.count("inbox_parked", "tenant_id = 'acme' AND holds_key = 1") == 3
    assert await shop.count("inbox_parked", "due_at IS NOT NULL AND message_id = 'm0'") == 1
    assert await shop.count("inbox_parked", "due_at IS NOT NULL") == 1


@pytest.mark.parametrize("first", [away, gone_meanwhile])
async def test_nothing_passes_a_message_that_could_not_be_moved(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, first: Callable[[], Awaitable[bool]]
) -> None:
    """The first did not go, those behind it did: the order of the key was lost."""
    calls = 0

    async def not_the_first_time(*arguments: Any) -> bool:
        nonlocal calls
        calls += 1
        return await (first() if calls == 1 else move(*arguments))

    async def all_there() -> bool:
        return await shop.count("inbox_parked") == 5

    shop.send("k0")
    await shop.loop(wait_long).drain()
    monkeypatch.setattr(lane_runner, "move", not_the_first_time)
    for n in range(1, 5):
        shop.send(f"k{n}")

    async with shop.running(shop.loop(wait_long)):
        await until(all_there, "all are in the table")

    assert await order_in_the_table(shop) == [f"k{n}" for n in range(5)]


@pytest.mark.parametrize("keys", [["hot"], None], ids=["of one key", "without keys"])
async def test_messages_that_wait_leave_room_for_others_in_the_window(
    shop: Shop, keys: list[str] | None
) -> None:
    """Held in hand, a poisoned key once filled the window, and nobody else received anything."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id.startswith("hot"):
            raise ValueError("for an hour")
        await record(event, ctx)

    for n in range(300):
        shop.send(f"hot{n}", key=keys[0] if keys else None)
    for n in range(20):
        shop.send(f"m{n}", key=f"k{n}")
    config = replace(
        QUICK, window=100, batch_size=10, retry_delay=3_000.0, retry_delay_max=3_000.0,
        hold_limit=3_600.0,
    )  # fmt: skip

    async with shop.running(shop.loop(handler, config)):
        await until(lambda: shop.effects_are(20), "the others are done")

    found = [int(message_id.removeprefix("hot")) for message_id in await order_in_the_table(shop)]
    assert not keys or found == list(range(len(found)))
    assert await shop.count("inbox_parked", "state = 'waiting' AND attempts = 1") >= 1
