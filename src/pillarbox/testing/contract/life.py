"""The life of a bus: start, apply, overlapping and cancelled calls, close."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing.contract.case import BusCase, assert_said_what_is_stored
from pillarbox.testing.messages import kinds, message, new_topic
from pillarbox.testing.rig import BusRig

_CALLS: Final = 3
_MANY: Final = 500


class LifeContract(BusCase):
    """What may be repeated, cancelled, closed and done twice in one process."""

    async def test_start_is_safe_to_repeat(self, bus: MessageBus) -> None:
        first = await bus.start()
        second = await bus.start()

        assert list(first) == list(second)

    async def test_the_limit_is_the_one_that_was_asked_for(self, rig: BusRig) -> None:
        limit = timedelta(seconds=4)
        bus = rig.bus(limit=limit)

        assert bus.capabilities.publish_timeout == limit
        await bus.close()

    async def test_an_empty_batch_has_no_outcomes(self, bus: MessageBus) -> None:
        assert list(await bus.publish([])) == []
        assert list(await bus.publish([], one_by_one=True)) == []

    async def test_apply_makes_what_is_missing_once(self, rig: BusRig, bus: MessageBus) -> None:
        topic = new_topic()

        made, again = await bus.apply([topic]), await bus.apply([topic])
        nothing = await bus.apply([])

        assert len(made) >= 1
        assert [*again, *nothing] == []
        assert await bus.publish([message(topic)]) == [ACCEPTED]
        assert len(await rig.read(topic)) == 1

    async def test_two_buses_in_one_process_do_not_disturb_each_other(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        other = rig.bus()

        await asyncio.gather(bus.publish([message(topic, 1)]), other.publish([message(topic, 2)]))
        await other.close()
        outcomes = await bus.publish([message(topic, 3)])

        assert outcomes == [ACCEPTED]
        assert len(await rig.read(topic)) == 3  # noqa: PLR2004 - one of each call

    async def test_a_cancelled_call_leaves_a_bus_that_works(self, bus: MessageBus) -> None:
        topic = new_topic()
        await bus.apply([topic])
        calls = [asyncio.ensure_future(bus.publish(batch)) for batch in many_batches(topic)]
        await asyncio.sleep(0)

        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        outcomes = await bus.publish([message(topic, 1)])

        assert all(isinstance(end, asyncio.CancelledError | list | tuple) for end in ended)
        assert outcomes == [ACCEPTED]

    @pytest.mark.parametrize("turns", [1, 20])
    async def test_closing_while_messages_are_under_way_answers_every_call_and_truly(
        self, rig: BusRig, bus: MessageBus, turns: int
    ) -> None:
        topic = new_topic()
        await bus.apply([topic])
        batches = many_batches(topic)
        calls = [asyncio.ensure_future(bus.publish(batch)) for batch in batches]
        for _ in range(turns):
            await asyncio.sleep(0)

        await bus.close()
        outcomes = await asyncio.gather(*calls)

        assert [len(answers) for answers in outcomes] == [_MANY] * _CALLS
        said = {kind for answers in outcomes for kind in kinds(answers)}
        assert said <= {"Accepted", "Unknown", "Unavailable"}
        await assert_said_what_is_stored(rig, topic, batches, outcomes)

    async def test_close_is_safe_to_repeat_and_without_a_start(self, rig: BusRig) -> None:
        bus = rig.bus()

        await bus.close()
        await bus.close()


def many_batches(topic: str) -> list[list[MessageEnvelope]]:
    """Make the messages of a few calls."""
    return [[message(topic, n) for n in range(_MANY)] for _ in range(_CALLS)]
