"""Lines that lose answers or break: what a bus says of a message is true all the same."""

import secrets
import time
from typing import Final

from pillarbox.bus.outcome import ACCEPTED
from pillarbox.testing.contract.case import (
    SHORT,
    SLACK,
    BusCase,
    accepted_again,
    assert_said_what_is_stored,
)
from pillarbox.testing.contract.powers import losing
from pillarbox.testing.messages import ids, kinds, message, new_topic
from pillarbox.testing.rig import BusRig

_LARGE: Final = 200_000
_MANY: Final = 300
_BATCHES: Final = 4


class LineContract(BusCase):
    """A line between the bus and its broker that fails in the middle."""

    async def test_a_lost_answer_is_unknown_in_time_and_the_message_may_be_stored(
        self, rig: BusRig
    ) -> None:
        broker, topic = losing(rig), new_topic()
        async with broker.behind_a_line(limit=SHORT) as (bus, line):
            assert await bus.publish([message(topic)]) == [ACCEPTED]
            line.lose_answers()
            lost = message(topic)
            begun = time.monotonic()

            outcomes = await bus.publish([lost])
            took = time.monotonic() - begun
            line.mend()
            await accepted_again(bus, topic)
            again = await bus.publish([lost])

        assert kinds(outcomes) == ["Unknown"]
        assert took <= SHORT.total_seconds() + SLACK
        assert again == [ACCEPTED]
        copies = ids(await rig.read(topic)).count(lost.event_id)
        assert copies == 1 if bus.capabilities.deduplicates else copies >= 1

    async def test_a_line_that_breaks_within_a_message_leaves_no_part_of_it(
        self, rig: BusRig
    ) -> None:
        broker, topic = losing(rig), new_topic()
        cut = message(topic, data=secrets.token_bytes(_LARGE))
        async with broker.behind_a_line(limit=SHORT) as (bus, line):
            assert await bus.publish([message(topic)]) == [ACCEPTED]
            line.cut_after(_LARGE // 2)

            outcomes = await bus.publish([cut])
            await accepted_again(bus, topic)
            again = await bus.publish([cut])

        assert set(kinds(outcomes)) <= {"Accepted", "Unknown", "Unavailable"}
        assert again == [ACCEPTED]
        copies = [found for found in await rig.read(topic) if found.event_id == cut.event_id]
        # Compared as a truth value: a difference of so many bytes is not worth showing.
        assert ({found.body for found in copies} == {cut.data}) is True

    async def test_what_a_bus_says_of_messages_on_a_line_that_breaks_is_true(
        self, rig: BusRig
    ) -> None:
        broker, topic = losing(rig), new_topic()
        batches = [[message(topic, n) for n in range(_MANY)] for _ in range(_BATCHES)]
        async with broker.behind_a_line(limit=SHORT) as (bus, line):
            assert await bus.publish([message(topic)]) == [ACCEPTED]
            line.cut_after(_LARGE)

            outcomes = [await bus.publish(batch) for batch in batches]
            await accepted_again(bus, topic)

        await assert_said_what_is_stored(rig, topic, batches, outcomes)
