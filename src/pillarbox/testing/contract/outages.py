"""Brokers that die or freeze: `publish` answers in time and recovers by itself."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest_asyncio

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.testing.contract.case import SHORT, SLACK, BusCase, accepted, accepted_again
from pillarbox.testing.contract.powers import stopping
from pillarbox.testing.messages import ids, kinds, message, new_topic
from pillarbox.testing.rig import BusRig


class BusOutageContract(BusCase):
    """Hold a bus to the contract while its broker is killed, frozen and restarted.

    Subclass it as `BusContract`, with a rig that is a `StopsBroker` and has a broker of its own.
    """

    @pytest_asyncio.fixture
    async def bus(self, rig: BusRig) -> AsyncIterator[MessageBus]:
        """A bus with a short limit."""
        made = rig.bus(limit=SHORT)
        yield made
        await made.close()

    async def test_a_killed_broker_costs_no_hang_and_is_used_again_when_it_is_back(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        broker, topic = stopping(rig), new_topic()
        first = message(topic)
        assert await bus.publish([first]) == [ACCEPTED]

        await broker.kill()
        during = {kind for _ in range(3) for kind in await publish_in_time(bus, topic)}
        await broker.restart()
        await accepted_again(bus, topic)

        assert during <= {"Unknown", "Unavailable"}
        assert "Unavailable" in during
        assert ids(await rig.read(topic)).count(first.event_id) == 1

    async def test_a_broker_that_dies_under_load_loses_nothing_acknowledged(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        broker, topic = stopping(rig), new_topic()
        assert await bus.publish([message(topic)]) == [ACCEPTED]
        batches = [[message(topic, n) for n in range(300)] for _ in range(10)]
        calls = [asyncio.ensure_future(bus.publish(batch)) for batch in batches]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

        await broker.kill()
        outcomes = await asyncio.gather(*calls)
        await broker.restart()
        await accepted_again(bus, topic)

        answered = zip(batches, outcomes, strict=True)
        acknowledged = {sent for batch, said in answered for sent in ids(accepted(batch, said))}
        assert acknowledged <= set(ids(await rig.read(topic)))

    async def test_a_frozen_broker_is_answered_for_in_time_and_thaws(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        broker, topic = stopping(rig), new_topic()
        assert await bus.publish([message(topic)]) == [ACCEPTED]

        await broker.freeze()
        try:
            during = [await publish_in_time(bus, topic) for _ in range(2)]
        finally:
            await broker.thaw()
        await accepted_again(bus, topic)

        assert set(during[0]) == {"Unknown"}
        assert set(during[1]) <= {"Unknown", "Unavailable"}


async def publish_in_time(bus: MessageBus, topic: str, count: int = 50) -> list[str]:
    """Publish and hold the bus to its limit; return the kinds of the outcomes."""
    begun = time.monotonic()
    outcomes = await bus.publish([message(topic, n) for n in range(count)])
    assert time.monotonic() - begun <= SHORT.total_seconds() + SLACK
    assert len(outcomes) == count
    return kinds(outcomes)
