"""What must not stop a projector: odd rows, large payloads, slow hooks, a database that hangs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from pillarbox.bus.outcome import Refused
from pillarbox.projector import settler
from pillarbox.projector.observer import Observer
from pillarbox.projector.store import Failure, OutboxEvent
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")
TOO_LARGE = Refused("too-large", "1,048,577 bytes")


@asynccontextmanager
async def locked(shop: Shop) -> AsyncIterator[None]:
    """Hold the table, as CREATE INDEX or ALTER TABLE do."""
    async with shop.database.engine.connect() as connection:
        await connection.execute(text("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE"))
        yield
        await connection.rollback()


async def someone_waits(shop: Shop) -> bool:
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND application_name = 'pillarbox-projector' AND datname = current_database()"
    )
    return bool(await shop.database.scalar(statement))


async def test_a_row_that_cannot_be_read_is_dead_and_holds_up_its_key_alone(shop: Shop) -> None:
    first, odd, behind, other = await shop.add("a", "a", "a", "b")
    change = f"UPDATE outbox SET event_metadata = '[1]' WHERE id = '{odd}'"
    await shop.run(change)

    async with shop.configured(max_retry_attempts=2).projecting():
        await shop.sent([first, other])
        await shop.status([odd], "DEAD")
        await shop.sent(await shop.add("b"))

    assert behind not in shop.delivered()
    dead = next(row for row in await shop.database.events() if str(row.id) == odd)
    assert dead.error_class == "unreadable"


async def test_one_pass_sends_a_payload_above_its_share_of_a_batch(shop: Shop) -> None:
    (large,) = await shop.add("a")
    await shop.run(
        "UPDATE outbox SET payload = to_json((SELECT string_agg(md5(n::text), '')"
        " FROM generate_series(1, 1000) AS n))"
    )

    assert await shop.projector().run_once() == 1

    assert shop.delivered() == [large]


async def test_a_hook_that_does_not_return_holds_up_nobody(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="pillarbox.projector")
    monkeypatch.setattr(settler, "HOOK_SECONDS", 0.05)

    async def hook(event: OutboxEvent, failure: Failure) -> None:
        await asyncio.Event().wait()

    bad, other = await shop.add("a", "b")
    shop.refuse([bad], TOO_LARGE)

    async with shop.configured(max_retry_attempts=1).projecting(dead_hook=hook):
        await shop.status([bad], "DEAD")
        await shop.sent([other])


async def test_leases_are_kept_while_the_table_is_locked(shop: Shop) -> None:
    kept = asyncio.Event()

    class Keeping(Observer):
        def owns(self, shards: int) -> None:
            if shards:
                kept.set()

    async with shop.configured(lease=12.0).projecting(observer=Keeping()):
        await shop.sent(await shop.add("a"))
        async with locked(shop):
            await until(lambda: someone_waits(shop), "a statement waits for the table")
            for _ in range(2):
                kept.clear()
                async with asyncio.timeout(10):
                    await kept.wait()
        await shop.sent(await shop.add("a"))


async def test_a_second_stop_does_not_wait_for_a_claim_that_hangs(shop: Shop) -> None:
    projector = shop.configured(lease=600.0).projector()
    running = asyncio.create_task(projector.run_forever())
    await shop.sent(await shop.add("a"))
    async with locked(shop):
        await until(lambda: someone_waits(shop), "a claim waits for the table")
        projector.stop()
        projector.stop()

        async with asyncio.timeout(20):
            await running


async def test_draining_ends_when_everything_is_paused(shop: Shop) -> None:
    await shop.add("a")
    await shop.run("INSERT INTO outbox_control (tenant_id, topic, paused) VALUES ('*', '*', 1)")

    async with asyncio.timeout(20):
        assert await shop.projector().drain() == 0
