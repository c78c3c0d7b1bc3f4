"""What fails is answered for: the guilty message alone, the topic alone, and in time."""

import asyncio
import time
from typing import Final

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, Refused, Unavailable, Unknown
from pillarbox.errors import BusUnreachable
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing.contract.case import SHORT, SLACK, BusCase, accepted, accepted_again, blamed
from pillarbox.testing.contract.powers import forbidding, refusing, unreachable
from pillarbox.testing.messages import ids, kinds, message, new_topic
from pillarbox.testing.rig import BusRig

_OTHERS: Final = 999
_ROUNDS: Final = 20


class FailureContract(BusCase):
    """Outcomes when the broker refuses, forbids, is silent or is not there."""

    async def test_a_refused_message_in_the_middle_of_a_key_is_answered_for(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, broker = new_topic(), refusing(rig)
        batch = [message(topic, n, key="hot") for n in range(5)]
        batch[2] = await broker.refuse(batch[2])

        outcomes = await bus.publish(batch)

        assert isinstance(outcomes[2], Refused)
        assert not any(blamed(outcome) for outcome in (*outcomes[:2], *outcomes[3:]))
        stored = ids(await rig.read(topic))
        assert batch[2].event_id not in stored
        assert set(ids(accepted(batch, outcomes))) <= set(stored)
        if bus.capabilities.pipelines_keys:
            assert stored == ids(batch[: len(stored)])
            assert not accepted(batch[2:], outcomes[2:])

    @pytest.mark.parametrize("apart", [1, 5, 100])
    async def test_nothing_of_a_key_passes_its_refused_message_by_calls_that_overlap(
        self, rig: BusRig, bus: MessageBus, apart: int
    ) -> None:
        if not bus.capabilities.pipelines_keys:
            pytest.skip(f"the bus of {rig.name} gets one message of a key at a time")
        topic, broker = new_topic(), refusing(rig)
        refused = await broker.refuse(message(topic, key="hot"))

        calls = [asyncio.ensure_future(bus.publish([refused]))]
        while not calls[0].done():
            calls.append(asyncio.ensure_future(bus.publish([message(topic, key="hot")])))
            for _ in range(apart):
                await asyncio.sleep(0)
        outcomes = [(await call)[0] for call in calls]

        assert isinstance(outcomes[0], Refused)
        assert not any(isinstance(outcome, Accepted) for outcome in outcomes)
        assert await rig.read(topic) == []

    async def test_one_refused_among_others_costs_no_other_an_attempt(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, broker = new_topic(), refusing(rig)
        batch = [message(topic, n) for n in range(_OTHERS + 1)]
        guilty = batch[500] = await broker.refuse(batch[500])

        outcomes = await bus.publish(batch)
        others = [*outcomes[:500], *outcomes[501:]]
        left = [sent for sent in batch if sent not in accepted(batch, outcomes)]
        left.remove(guilty)
        await publish_until_accepted(bus, left)
        [alone] = await bus.publish([guilty], one_by_one=True)

        assert isinstance(outcomes[500], Refused)
        assert not any(blamed(outcome) for outcome in others)
        assert not any(isinstance(outcome, Unavailable) for outcome in others)
        assert blamed(alone)
        innocent = {sent.event_id for sent in batch if sent is not guilty}
        assert set(ids(await rig.read(topic))) == innocent

    async def test_one_by_one_only_the_guilty_message_is_refused(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, broker = new_topic(), refusing(rig)
        guilty = await broker.refuse(message(topic, key="hot"))
        first, later = message(topic, key="hot"), message(topic, key="hot")
        innocent = message(topic, key="other")

        outcomes = await bus.publish([first, guilty, later, innocent], one_by_one=True)

        assert [outcomes[0], outcomes[3]] == [ACCEPTED] * 2
        assert blamed(outcomes[1])
        assert isinstance(outcomes[2], Accepted | Unknown)
        stored = ids(await rig.read(topic))
        assert {first.event_id, innocent.event_id} <= set(stored)
        assert guilty.event_id not in stored
        if bus.capabilities.pipelines_keys:
            assert later.event_id not in stored

    async def test_a_closed_topic_is_unavailable_by_its_name_until_it_opens(
        self, rig: BusRig, hurried: MessageBus
    ) -> None:
        broker, bus = forbidding(rig), hurried
        closed, other = new_topic(), new_topic()
        assert await bus.publish([message(closed), message(other)]) == [ACCEPTED] * 2

        await broker.forbid(closed)
        during = [*await bus.publish([message(closed, n) for n in range(3)])]
        beside = [*await bus.publish([message(closed), message(other)])]
        await accepted_again(bus, other)
        await broker.permit(closed)
        await accepted_again(bus, closed)

        # The first call may have begun on a connection that was cut for it; the second one knows.
        answers = [*during, beside[0]]
        unavailable = [found for found in answers if isinstance(found, Unavailable)]
        assert set(kinds(answers)) <= {"Unavailable", "Unknown"}
        assert {found.topic for found in unavailable} == {closed}
        assert not isinstance(beside[1], Unavailable | Refused)

    async def test_a_bus_that_nobody_answers_says_so_in_time(self, rig: BusRig) -> None:
        bus, begun = unreachable(rig).unreachable_bus(limit=SHORT), time.monotonic()

        outcomes = await bus.publish([message(new_topic(), n) for n in range(50)])
        took = time.monotonic() - begun
        with pytest.raises(BusUnreachable):
            await bus.start()
        await bus.close()

        assert bus.capabilities.publish_timeout == SHORT
        assert took <= SHORT.total_seconds() + SLACK
        assert kinds(outcomes) == ["Unavailable"] * 50


async def publish_until_accepted(bus: MessageBus, left: list[MessageEnvelope]) -> None:
    """Send innocent messages one by one, as the projector does; none may be refused."""
    for _ in range(_ROUNDS):
        if not left:
            return
        outcomes = await bus.publish(left, one_by_one=True)
        assert not any(isinstance(outcome, Refused) for outcome in outcomes)
        done = set(ids(accepted(left, outcomes)))
        left = [sent for sent in left if sent.event_id not in done]
    assert not left
