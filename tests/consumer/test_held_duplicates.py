"""What took effect and comes again behind a held key is a duplicate, and never waits in the table."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from pillarbox import SqlAlchemyInbox
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Park, Retry
from pillarbox.ops import ParkedFilter, ParkedOps
from tests.consumer.rig import CONSUMER, QUICK, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")

ONE_LANE = replace(QUICK, lanes=1)


async def handler(event: dict[str, Any], ctx: Context) -> None:
    if ctx.envelope.event_id == "m6":
        raise Park("in this test")
    await record(event, ctx)


async def forget_everything(shop: Shop) -> None:
    """Do what the retention does when its time is over."""
    async with shop.database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM inbox"))


async def test_a_duplicate_behind_a_parked_message_has_no_second_effect_when_that_goes(
    shop: Shop,
) -> None:
    """It waited in the table for longer than the inbox remembered it."""
    for n in (4, 5, 6):
        shop.send(f"m{n}", n=n)
    await shop.loop(handler, ONE_LANE).drain()

    shop.bus.redeliver()
    shop.send("m7", n=7)
    await shop.loop(handler, ONE_LANE).drain()
    assert await shop.count("inbox_parked") == 2

    await forget_everything(shop)
    ops = ParkedOps(shop.database.engine, actor="jane")
    await ops.discard_all(ParkedFilter(consumer=CONSUMER), reason="decided")
    await shop.loop(handler, ONE_LANE).drain()

    assert await shop.effects() == ["m4", "m5", "m7"]
    assert shop.seen.outcomes["duplicate"] == 3


async def test_a_duplicate_in_hand_is_not_moved_with_the_message_before_it(shop: Shop) -> None:
    async def wait_with_m0(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "m0":
            raise Retry(after=timedelta(hours=1))
        await record(event, ctx)

    shop.send("m1", n=1)
    await shop.loop(wait_with_m0).drain()

    for n in (0, 1, 2):
        shop.send(f"m{n}", n=n)
    await shop.loop(wait_with_m0, replace(ONE_LANE, batch_size=1)).drain()

    assert await shop.count("inbox_parked", "message_id IN ('m0', 'm2')") == 2
    assert await shop.count("inbox_parked") == 2


async def test_what_was_marked_by_hand_without_its_content_is_a_duplicate_there_too(
    shop: Shop,
) -> None:
    shop.send("m6", n=6)
    await shop.loop(handler, ONE_LANE).drain()
    async with shop.database.sessions.begin() as session:
        await SqlAlchemyInbox(session, consumer=CONSUMER).mark_processed("m4", "OrderCreated")

    shop.send("m4", n=4)
    await shop.loop(handler, ONE_LANE).drain()

    assert await shop.count("inbox_parked") == 1
    assert shop.seen.outcomes["duplicate"] == 1
