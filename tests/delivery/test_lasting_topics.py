"""A topic that is away for longer keeps no shard, no stop and no operator waiting."""

import asyncio
from collections.abc import Callable

from sqlalchemy import text

from pillarbox.bus.outcome import Refused, Unavailable
from pillarbox.errors import EventInFlight
from pillarbox.ops import Ops
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")

SHARES = text(
    "SELECT count(*), max(shards) - min(shards) FROM (SELECT count(*) AS shards FROM outbox_lease "
    "WHERE member_id IS NOT NULL GROUP BY member_id) AS members"
)


def take_away(shop: Shop) -> Callable[[], None]:
    return shop.fail_topic("gone", Unavailable("no-topic", "in this test", topic="gone"))


async def is_claimed(shop: Shop) -> bool:
    return bool(await shop.database.scalar("SELECT count(*) FROM outbox_claim"))


async def test_another_projector_gets_its_shards_though_their_events_wait_for_a_topic(
    shop: Shop,
) -> None:
    """One such event in hand kept its shard, and nobody claimed for that shard any more."""
    waiting = await shop.add(*[f"k{n}" for n in range(64)], topic="gone")
    recover = take_away(shop)

    async def is_shared() -> bool:
        async with shop.database.engine.connect() as connection:
            return tuple((await connection.execute(SHARES)).one()) == (2, 0)

    async with shop.projecting():
        await until(lambda: is_claimed(shop), "the first has events in hand")
        async with shop.projecting():
            await until(is_shared, "both own half of the shards", 30)
            await shop.sent(await shop.add(*[f"j{n}" for n in range(64)]))
            recover()
            await shop.sent(waiting)

    assert set((await shop.attempts()).values()) == {0}


async def test_a_projector_stops_long_before_its_limit_while_a_topic_is_away(shop: Shop) -> None:
    (waiting,) = await shop.add("a", topic="gone")
    take_away(shop)
    projector = shop.configured(stop_timeout=300.0).projector()
    running = asyncio.ensure_future(projector.run_forever())
    await until(lambda: is_claimed(shop), "it has the event in hand")

    projector.stop()
    await asyncio.wait_for(running, 30)

    assert await shop.standing() == {waiting: "NEW"}


async def test_a_dead_event_is_decided_about_while_another_of_its_claim_waits_for_a_topic(
    shop: Shop,
) -> None:
    """Their claim was open for as long as the topic was away: every act was told to try again."""
    (bad,) = await shop.add("a")
    await shop.add("b", topic="gone")
    shop.refuse([bad], Refused("too-large", "in this test"))
    take_away(shop)
    ops = Ops(shop.database.engine, actor="jane")

    async def is_skipped() -> bool:
        try:
            await ops.skip(bad, reason="nobody wants it")
        except EventInFlight:
            return False
        return True

    async with shop.configured(max_retry_attempts=1).projecting():
        await shop.status([bad], "DEAD")
        await until(is_skipped, "it is decided about", 30)

    assert (
        await shop.database.scalar("SELECT count(*) FROM outbox_blocked_key WHERE key = 'a'") == 0
    )
