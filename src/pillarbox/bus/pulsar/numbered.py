"""Publish with numbers, so that Pulsar drops a message that it has stored already."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pillarbox.bus.handover import HELD_BACK
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Unavailable, Unknown
from pillarbox.bus.pulsar.numbers import EventKey, Numbers, Stored, event_key
from pillarbox.bus.pulsar.producer import Build, ProducerLife
from pillarbox.bus.pulsar.producers import Opened
from pillarbox.event.envelope import MessageEnvelope

_log = logging.getLogger("pillarbox.bus.pulsar")

Reach = Callable[[str], Awaitable[ProducerLife | Unavailable]]


class Numbered:
    """Number the messages of each topic, and repeat the number of one in doubt."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._stored = Stored()
        self._numbers: dict[str, Numbers] = {}

    def opened(self, topic: str, opened: Opened) -> None:
        """Learn what the broker has seen under our name."""
        self._of(topic).opened(opened.last, exact=opened.exact)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the numbers of topics that were not used for long; the broker knows the last one."""
        for topic in topics:
            numbers = self._numbers.get(topic)
            if numbers is not None and not numbers.turn.locked():
                del self._numbers[topic]

    async def publish(
        self, reach: Reach, topic: str, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        """Publish the messages of one topic, those in doubt first and by their own numbers."""
        self._stored.forget(asyncio.get_running_loop().time())
        missing = {event_key(m): m for m in batch if event_key(m) not in self._stored}
        answers: dict[EventKey, PublishOutcome] = {}
        if missing:
            life = await reach(topic)
            if isinstance(life, Unavailable):
                answers = dict.fromkeys(missing, life)
            else:
                answers = await self._publish(life, missing, deadline)
        return [answers.get(event_key(message), ACCEPTED) for message in batch]

    async def _publish(
        self, life: ProducerLife, missing: dict[EventKey, MessageEnvelope], deadline: float
    ) -> dict[EventKey, PublishOutcome]:
        numbers = self._of(life.topic)
        answers: dict[EventKey, PublishOutcome] = dict.fromkeys(missing, HELD_BACK)
        try:
            async with asyncio.timeout_at(deadline), numbers.turn:
                answers |= await self._repeat(life, numbers, missing, deadline)
                fresh = [event for event in missing if answers[event] is HELD_BACK]
                if not fresh or life.ended:
                    return answers
                if lost := numbers.give_up_doubts():
                    _log.warning("pulsar_dedup_lost", extra={"topic": life.topic, "events": lost})
                sent = await life.hand_over(
                    [missing[event] for event in fresh], self._numbering(numbers), deadline
                )
        except TimeoutError:
            return answers
        found = await life.answers(sent, len(fresh), deadline)
        self._settle(numbers, fresh, found)
        return answers | dict(zip(fresh, found, strict=True))

    async def _repeat(
        self,
        life: ProducerLife,
        numbers: Numbers,
        missing: dict[EventKey, MessageEnvelope],
        deadline: float,
    ) -> dict[EventKey, PublishOutcome]:
        """Send what is in doubt again; the broker drops it, and says so, if it has stored it.

        Alone, since the client takes no answer to a number below one that it waits for.
        """
        doubted = {event: numbers.doubted(event) for event in missing}
        again = sorted((number, event) for event, number in doubted.items() if number is not None)
        if not again:
            return {}
        await life.quiet(deadline)
        given = iter([number for number, _ in again])
        batch = [missing[event] for _, event in again]
        sent = await life.hand_over(
            batch, lambda m: _numbered(self._build(m), next(given)), deadline
        )
        found = await life.answers(sent, len(again), deadline)
        now = asyncio.get_running_loop().time()
        for (number, _), outcome in zip(again, found, strict=True):
            if outcome is ACCEPTED:
                for event in numbers.proven(number):
                    self._stored.add(event, now)
        return {event: outcome for (_, event), outcome in zip(again, found, strict=True)}

    def _numbering(self, numbers: Numbers) -> Build:
        return lambda message: _numbered(self._build(message), numbers.give(event_key(message)))

    def _settle(
        self, numbers: Numbers, events: Sequence[EventKey], outcomes: Sequence[PublishOutcome]
    ) -> None:
        now = asyncio.get_running_loop().time()
        for event, outcome in zip(events, outcomes, strict=True):
            if not isinstance(outcome, Unknown):
                numbers.settled(event)
            if outcome is ACCEPTED:
                self._stored.add(event, now)

    def _of(self, topic: str) -> Numbers:
        return self._numbers.setdefault(topic, Numbers())


def _numbered(message: Any, number: int) -> Any:
    message.sequence_id(number)
    return message
