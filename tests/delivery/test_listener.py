"""Without a listener, or with one that hears nothing any more, polling bounds the wait."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pillarbox import OutboxProjector
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.faultproxy import CLIENT, SERVER, Cut, Drop, FaultProxy, Freeze, Rule, Seen
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg")

SLEEP_IDLE = 0.3
MACHINE = 2.0  # what a busy machine may add
LISTEN = b"LISTEN"
# The server's answer to LISTEN has the same word.
FAULTS = {
    "dead": [Rule(SERVER, Seen(LISTEN), Cut()) for _ in range(5)],
    "refused without an answer": [Rule(SERVER, Seen(LISTEN), Freeze())],
    "half-open": [Rule(CLIENT, Seen(LISTEN), Freeze(), after=True)],
    "deaf": [Rule(CLIENT, Seen(LISTEN), Drop(CLIENT), after=True)],
}


@asynccontextmanager
async def projecting_through(shop: Shop, proxy: FaultProxy) -> AsyncIterator[None]:
    """Run a projector that hears of nothing but what the proxy passes on."""
    url = shop.database.url.set(drivername="postgresql", host=proxy.host, port=proxy.port)
    projector = OutboxProjector(
        message_bus=shop.bus,
        dsn=url.render_as_string(hide_password=False),
        config=shop.configured(sleep_busy=SLEEP_IDLE, sleep_idle=SLEEP_IDLE).config,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(projector.run_forever())
        try:
            yield
            assert not running.done()
        finally:
            projector.stop()


@pytest.mark.parametrize("rules", FAULTS.values(), ids=FAULTS)
async def test_a_commit_is_found_within_sleep_idle(shop: Shop, rules: list[Rule]) -> None:
    host, port = shop.database.url.host, shop.database.url.port
    assert host is not None
    assert port is not None
    async with FaultProxy(host, port) as proxy:
        proxy.plan(*rules)
        async with projecting_through(shop, proxy):
            await proxy.fired()

            for _ in range(3):
                (added,) = await shop.add("a")
                await arrives_in_time(shop, added)


async def arrives_in_time(shop: Shop, event_id: str) -> None:
    committed = time.monotonic()

    async def arrived() -> bool:
        return event_id in shop.delivered()

    await until(arrived, "the event is delivered", SLEEP_IDLE + MACHINE)
    assert time.monotonic() < committed + SLEEP_IDLE + MACHINE
