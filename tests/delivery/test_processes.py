"""Projectors beside others: woken, cut off, sharing the shards, stopped."""

import asyncio
from collections.abc import Sequence

import pytest

from pillarbox import MemoryMessageBus, MessageEnvelope
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.errors import InvalidConfig, ScopeOverlaps
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")


class Silent(MemoryMessageBus):
    """A bus that never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        del batch, one_by_one
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_commit_in_this_process_wakes_the_projector(shop: Shop) -> None:
    async with shop.configured(sleep_busy=60, sleep_idle=60).projecting():
        await shop.sent(await shop.add("a"))
        await shop.sent(await shop.add("b"), limit=30)


async def test_a_notification_from_elsewhere_wakes_the_projector(shop: Shop) -> None:
    async with shop.configured(sleep_busy=60, sleep_idle=60).projecting():
        await shop.sent(await shop.add("a"))
        await shop.run(
            "INSERT INTO outbox (occurred_at, shard_hash, id, event_type, topic, key, payload) "
            "SELECT now(), 3, gen_random_uuid(), 'Noted', 'orders', 'k', '{}'"
        )

        async def woken() -> bool:
            await shop.run("NOTIFY pillarbox_outbox")
            return len(shop.bus.messages) == 2

        await until(woken, "the second event", 30)


async def test_lost_connections_are_survived(shop: Shop) -> None:
    async with shop.projecting():
        for _ in range(5):
            await shop.sent(await shop.add("a", "b"))
            await shop.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'pillarbox-projector'"
            )

    assert [m.key for m in shop.bus.messages if m.key == "a"]
    assert set((await shop.attempts()).values()) == {0}


async def test_two_projectors_share_the_shards_and_hand_them_over(shop: Shop) -> None:
    shop.configured(lease=12.0)

    async def owners() -> list[int]:
        async with shop.database.engine.connect() as connection:
            rows = await connection.exec_driver_sql(
                "SELECT count(*) FROM outbox_lease WHERE member_id IS NOT NULL GROUP BY member_id"
            )
            return sorted(count for (count,) in rows)

    async def even() -> bool:
        return await owners() == [32, 32]

    async def one() -> bool:
        return await owners() == [64]

    async with shop.projecting():
        await until(one, "one owner")
        async with shop.projecting():
            await until(even, "two owners", 15)
            await shop.sent(await shop.add(*[f"k{n}" for n in range(50)]))
        await until(one, "one owner again", 15)
        await shop.sent(await shop.add(*[f"k{n}" for n in range(50)]))


async def test_overlapping_scopes_are_refused_and_equal_ones_share(shop: Shop) -> None:
    async with shop.projecting(tenant_id=["acme", "other"]):
        ids = await shop.add("a", tenant="acme")
        await shop.add("a", tenant="third")
        await shop.sent(ids)
        with pytest.raises(ScopeOverlaps, match="tenants:acme,other"):
            await shop.projector(tenant_id="acme").drain()
        with pytest.raises(ScopeOverlaps):
            await shop.projector().drain()

    assert [message.tenant_id for message in shop.bus.messages] == ["acme"]


async def test_a_projector_that_was_away_stops_if_another_serves_its_tenants(shop: Shop) -> None:
    running = asyncio.create_task(shop.projector().run_forever())
    await shop.sent(await shop.add("a"))

    # One statement: the projector sees neither without the other.
    await shop.run(
        "WITH away AS (UPDATE outbox_lease SET expires_at = now() - interval '1 hour') "
        "INSERT INTO outbox_member (member_id, scope, service, host, process_id, version) "
        "VALUES (gen_random_uuid(), 'tenants:acme', 'shop', 'elsewhere', 7, '0')"
    )

    with pytest.raises(ScopeOverlaps, match="elsewhere, process 7 serves tenants:acme"):
        await asyncio.wait_for(running, 30)
    assert await shop.database.scalar("SELECT count(*) FROM outbox_member") == 1


async def test_buckets_divide_the_tenants(shop: Shop) -> None:
    tenants = [f"t{n}" for n in range(12)]
    for tenant in tenants:
        await shop.add("a", tenant=tenant)

    await shop.projector(bucket="0/2").drain()
    first = {message.tenant_id for message in shop.bus.messages}
    await shop.projector(bucket="1/2").drain()

    assert 0 < len(first) < 12
    assert {message.tenant_id for message in shop.bus.messages} == set(tenants)
    assert len(shop.bus.messages) == 12


async def test_a_lease_shorter_than_the_bus_may_take_is_refused_with_both_numbers(
    shop: Shop,
) -> None:
    with pytest.raises(InvalidConfig, match=r"is 5 s, and the bus may take 10 s"):
        shop.configured(lease=5.0).projector()


async def test_a_second_stop_does_not_wait_for_answers(shop: Shop) -> None:
    bus = Silent()
    await shop.add("a")
    projector = shop.projector(message_bus=bus)
    running = asyncio.create_task(projector.run_forever())
    await bus.asked.wait()

    projector.stop()
    projector.stop()
    await asyncio.wait_for(running, 30)

    assert await shop.database.scalar("SELECT count(member_id) FROM outbox_lease") == 0
    assert await shop.database.scalar("SELECT status FROM outbox") == "NEW"
