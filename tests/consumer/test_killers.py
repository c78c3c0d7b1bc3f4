"""A message that kills the process is found and parked; the others are unharmed."""

import asyncio
import signal
import sys
from uuid import uuid4

import pytest

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing import new_topic
from tests.bus.subscription_rig import publish_all
from tests.consumer.rig import Shop
from tests.faults.consumers.buses import drill_bus
from tests.faults.consumers.grounds import BROKERS, Ground
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")


async def run_until_it_lives(shop: Shop, max_crashes: int, *broker: str) -> int:
    """Start the process as a supervisor does; return how often it died."""
    url = shop.database.url.render_as_string(hide_password=False)
    for deaths in range(10):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.consumer.killer_process", url, str(max_crashes), *broker
        )
        code = await asyncio.wait_for(process.wait(), 90)
        if code == 0:
            return deaths
        assert code == -signal.SIGKILL
    raise AssertionError("the message killed ten processes and was not parked")


async def test_a_message_that_kills_its_process_is_parked(shop: Shop) -> None:
    max_crashes = 3 if shop.database.is_postgres else 2
    deaths = await run_until_it_lives(shop, max_crashes)

    assert deaths == max_crashes
    assert sorted(await shop.effects()) == ["m0", "m1", "m2", "m3"]
    assert await shop.count("inbox_parked", "message_id = 'killer' AND reason = 'crashed'") == 1
    assert await shop.count("inbox_parked") == 1
    assert await shop.count("inbox_attempt") == 0


async def publish_one_killer_among_others(ground: Ground, consumer: str, topic: str) -> None:
    await asyncio.to_thread(ground.prepare, topic, [consumer])
    await publish_all(
        drill_bus(ground.server.url, ground.admin),
        [
            MessageEnvelope(
                event_id=f"{consumer}-{name}",
                event_type="OrderCreated",
                payload={"n": 1},
                topic=topic,
                key=name,
            )
            for name in ("m0", "m1", "killer", "m2", "m3")
        ],
    )


@pytest.mark.faults
@pytest.mark.timeout(400)
@pytest.mark.servers(*BROKERS)
async def test_a_message_that_kills_its_process_is_parked_on_every_broker(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    """Each broker has another way to say that a message was delivered before."""
    if not shop.database.is_postgres:
        pytest.skip("five consumers have one database")
    max_crashes = 2

    async def deaths_on(name: str) -> int:
        server = servers[name]
        ground = Ground(name, server, getattr(server, "admin_url", ""))
        consumer, topic = f"killed-{name}-{uuid4().hex}", new_topic()
        await publish_one_killer_among_others(ground, consumer, topic)
        broker = (ground.server.url, ground.admin, consumer, topic)
        deaths = await run_until_it_lives(shop, max_crashes, *broker)
        mine = f"consumer = '{consumer}'"
        assert await shop.count("inbox", mine) == 4, name
        assert await shop.count("inbox_parked", f"{mine} AND reason = 'crashed'") == 1, name
        assert await shop.count("inbox_attempt", mine) == 0, name
        return deaths

    servers = {name: request.getfixturevalue(f"{name}_server") for name in BROKERS}
    deaths = await asyncio.gather(*(deaths_on(name) for name in BROKERS))

    # The first delivery is marked only where a broker cannot say that it is the first.
    assert set(deaths) <= {max_crashes, max_crashes + 1}, dict(zip(BROKERS, deaths, strict=True))
