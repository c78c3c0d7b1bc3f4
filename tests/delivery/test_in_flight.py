"""What is in flight while the bus does not answer: what operators see, and what a stop leaves."""

from sqlalchemy import text

from tests.delivery.shop import Shop
from tests.delivery.test_news import HeldBus
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")

LIVE = text("SELECT status, count(*) FROM outbox_live GROUP BY status")


async def live(shop: Shop) -> dict[str, int]:
    async with shop.database.engine.connect() as connection:
        return {row[0]: row[1] for row in await connection.execute(LIVE)}


async def test_operators_see_publishing_while_the_bus_has_not_answered(shop: Shop) -> None:
    bus = HeldBus("default")
    shop.bus = bus
    ids = await shop.add("a", "b", "c")

    async with shop.projecting():

        async def under_way() -> bool:
            return bus.waiting > 0 and await live(shop) == {"PUBLISHING": 3}

        await until(under_way, "three events PUBLISHING")
        assert set((await shop.standing()).values()) == {"NEW"}  # a delivered row is written once
        bus.let_pass.set()
        await shop.sent(ids)

    assert await live(shop) == {"SENT": 3}


async def test_a_stop_claims_nothing_more_and_settles_what_is_in_hand(shop: Shop) -> None:
    bus = HeldBus("default")
    shop.bus = bus
    shop.configured(batch_size=8, batches_in_hand=2)
    ids = await shop.add(*[f"k{n}" for n in range(200)])

    async with shop.projecting() as projector:

        async def full() -> bool:
            return bus.waiting == 2

        await until(full, "two calls wait for an answer")
        projector.stop()
        bus.let_pass.set()

        async def ended() -> bool:
            return projector.turned_ago is None

        await until(ended, "the run is over")

    delivered = shop.delivered()
    assert 0 < len(delivered) <= shop.config.events_in_hand < len(ids)
    standing = await shop.standing()
    assert {i for i in ids if standing[i] == "SENT"} == set(delivered)
    assert await live(shop) == {"SENT": len(delivered), "NEW": len(ids) - len(delivered)}
