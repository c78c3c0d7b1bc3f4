"""Brokers that die or freeze: `publish` answers in time and recovers by itself."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest_asyncio

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.testing.contract.case import (
    SHORT,
    SLACK,
    BusCase,
    accepted_again,
    assert_said_what_is_stored,
)
from pillarbox.testing.contract.powers import stopping
from pillarbox.testing.messages import ids, kinds, message, new_topic
from pillarbox.testing.rig import BusRig

_PAUSE: Final = 0.05


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
        during: set[str] = set()
        for _ in range(3):
            during.update(await publish_in_time(bus, topic))
            await asyncio.sleep(_PAUSE)  # as the projector does after an outcome that is unknown
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

        await assert_said_what_is_stored(rig, topic, batches, outcomes)

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
