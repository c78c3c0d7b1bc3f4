"""Brokers that die, freeze or lose answers: `publish` answers in time and recovers by itself."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.errors import BusUnreachable
from pillarbox.servers import Server
from pillarbox.servers.ports import LOOPBACK, free_ports
from tests.bus.rig import Rig, ids, kinds, message, new_topic
from tests.bus.rigs import rig_for
from tests.support.faultproxy import CLIENT, Drop, FaultProxy
from tests.support.waiting import until

SHORT = timedelta(seconds=3)
SLACK = 0.5  # for a busy machine
RECOVERY = 60.0

pytestmark = pytest.mark.faults


@pytest.fixture
def rig(own_server: Server) -> Rig:
    return rig_for(own_server)


@pytest.fixture
async def bus(rig: Rig) -> AsyncIterator[MessageBus]:
    made = rig.bus(limit=SHORT)
    yield made
    await made.close()


async def publish_in_time(bus: MessageBus, topic: str, count: int = 50) -> list[str]:
    """Publish and hold the bus to its limit; return the kinds of the outcomes."""
    begun = time.monotonic()
    outcomes = await bus.publish([message(topic, n) for n in range(count)])
    assert time.monotonic() - begun <= SHORT.total_seconds() + SLACK
    assert len(outcomes) == count
    return kinds(outcomes)


async def accepted_again(bus: MessageBus, topic: str) -> None:
    async def accepted() -> bool:
        return set(await publish_in_time(bus, topic, 5)) == {"Accepted"}

    await until(accepted, "messages are accepted again", RECOVERY)


async def test_a_killed_broker_costs_no_hang_and_is_used_again_when_it_is_back(
    own_server: Server, rig: Rig, bus: MessageBus
) -> None:
    topic = new_topic()
    first = message(topic)
    assert await bus.publish([first]) == [ACCEPTED]

    await asyncio.to_thread(own_server.kill)
    during = {kind for _ in range(3) for kind in await publish_in_time(bus, topic)}
    await asyncio.to_thread(own_server.restart)
    await accepted_again(bus, topic)

    assert during <= {"Unknown", "Unavailable"}
    assert "Unavailable" in during
    assert ids(await rig.read(topic)).count(first.event_id) == 1


async def test_a_broker_that_dies_under_load_loses_nothing_acknowledged(
    own_server: Server, rig: Rig, bus: MessageBus
) -> None:
    topic = new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    batches = [[message(topic, n) for n in range(300)] for _ in range(10)]
    calls = [asyncio.ensure_future(bus.publish(batch)) for batch in batches]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    await asyncio.to_thread(own_server.kill)
    outcomes = await asyncio.gather(*calls)
    await asyncio.to_thread(own_server.restart)
    await accepted_again(bus, topic)

    acknowledged = {
        sent.event_id
        for batch, answers in zip(batches, outcomes, strict=True)
        for sent, answer in zip(batch, answers, strict=True)
        if answer == ACCEPTED
    }
    assert acknowledged <= set(ids(await rig.read(topic)))


async def test_a_frozen_broker_is_answered_for_in_time_and_thaws(
    own_server: Server, bus: MessageBus
) -> None:
    topic = new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]

    own_server.freeze()
    try:
        during = [await publish_in_time(bus, topic) for _ in range(2)]
    finally:
        own_server.thaw()
    await accepted_again(bus, topic)

    assert set(during[0]) == {"Unknown"}
    assert set(during[1]) <= {"Unknown", "Unavailable"}


# Kafka's clients go to the address that the broker names, past a proxy.
@pytest.mark.parametrize(
    "own_server", [pytest.param("nats", marks=pytest.mark.servers("nats"))], indirect=True
)
async def test_a_lost_answer_is_unknown_and_the_message_may_be_stored(
    own_server: Server, rig: Rig
) -> None:
    topic, lost = new_topic(), None
    async with FaultProxy(LOOPBACK, own_server.port) as proxy:
        bus = rig.bus(limit=SHORT, address=f"nats://{proxy.host}:{proxy.port}")
        assert await bus.publish([message(topic)]) == [ACCEPTED]

        proxy.now(Drop(CLIENT))
        lost = message(topic)
        assert kinds(await bus.publish([lost])) == ["Unknown"]
        proxy.thaw()
        await accepted_again(bus, topic)
        assert await bus.publish([lost]) == [ACCEPTED]
        await bus.close()

    assert ids(await rig.read(topic)).count(lost.event_id) == 1


async def test_a_bus_that_nobody_answers_says_so_in_time(rig: Rig) -> None:
    nobody = f"{LOOPBACK}:{free_ports(['none'])['none']}"
    bus = rig.bus(limit=SHORT, address=nobody if rig.name == "kafka" else f"nats://{nobody}")

    assert set(await publish_in_time(bus, new_topic())) == {"Unavailable"}
    with pytest.raises(BusUnreachable):
        await bus.start()
    await bus.close()
