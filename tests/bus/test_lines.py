"""Lines between a bus and its broker that are slow, or that a bus leaves while it opens them."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.testing.contract.powers import losing
from tests.bus.rig import ProxyLine, Rig, kinds, message, new_topic
from tests.bus.rigs import BROKERS, rig_for
from tests.support.faultproxy import CLIENT, AtOnce, Delay, FaultProxy, Rule
from tests.support.waiting import until

SLOW = Delay(timedelta(seconds=0.3))
LIMIT = timedelta(seconds=10)


@pytest.fixture(params=BROKERS)
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each broker in turn, on the servers that all tests share."""
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
async def line(rig: Rig) -> AsyncIterator[tuple[MessageBus, FaultProxy]]:
    """Yield a bus that has not connected yet, and the proxy on its way."""
    async with losing(rig).behind_a_line(limit=LIMIT) as (bus, line):
        assert isinstance(line, ProxyLine)
        yield bus, line.proxy


async def _connects(proxy: FaultProxy) -> bool:
    return proxy.connections > 0


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_a_bus_that_is_closed_while_it_connects_leaves_no_connection(
    line: tuple[MessageBus, FaultProxy], turns: int
) -> None:
    bus, proxy = line
    proxy.plan(Rule(CLIENT, AtOnce(), SLOW))
    call = asyncio.ensure_future(bus.publish([message(new_topic())]))
    await until(lambda: _connects(proxy), "a connection stands")
    await asyncio.sleep(turns * SLOW.by.total_seconds() * 1.5)

    await bus.close()
    outcomes = await call

    assert set(kinds(outcomes)) <= {"Accepted", "Unknown", "Unavailable"}
    await proxy.connected(0)


async def test_a_slow_line_costs_time_and_no_message(
    line: tuple[MessageBus, FaultProxy],
) -> None:
    bus, proxy = line
    topic = new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    proxy.now(SLOW)
    begun = time.monotonic()

    outcomes = await bus.publish([message(topic, n) for n in range(20)])

    assert outcomes == [ACCEPTED] * 20
    assert time.monotonic() - begun >= SLOW.by.total_seconds()
