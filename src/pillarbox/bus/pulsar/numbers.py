"""The numbers by which Pulsar knows a message again, as plain decisions."""

import asyncio
from collections import OrderedDict
from typing import Final, NamedTuple

from pillarbox.event.envelope import MessageEnvelope

REMEMBERED: Final = 20_000
WINDOW_SECONDS: Final = 120.0


class EventKey(NamedTuple):
    """What makes two messages the same."""

    topic: str
    tenant_id: str
    event_id: str


def event_key(envelope: MessageEnvelope) -> EventKey:
    """Return what makes a message the same when it is sent again."""
    return EventKey(envelope.topic or "", envelope.tenant_id, envelope.event_id)


class Stored:
    """The events that the broker has acknowledged of late, bounded in number and age."""

    def __init__(self) -> None:
        self._since: OrderedDict[EventKey, float] = OrderedDict()

    def __contains__(self, event: EventKey) -> bool:
        return event in self._since

    def add(self, event: EventKey, now: float) -> None:
        """Remember an acknowledged event, and forget the old ones."""
        self._since[event] = now
        self._since.move_to_end(event)
        self.forget(now)

    def forget(self, now: float) -> None:
        """Drop what is too old, or too much."""
        since = self._since
        while since and (
            len(since) > REMEMBERED or now - next(iter(since.values())) > WINDOW_SECONDS
        ):
            since.popitem(last=False)


class Numbers:
    """The numbers of one topic's messages, under a producer name that no other process has.

    They only grow. Pulsar drops a message whose number is not above the last one it has seen under
    the name. So an event in doubt may keep its number only if the broker has seen that number, and
    only until a higher one is sent: a number that was never stored, sent after a higher one, would
    be dropped and the event lost.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._last = 0
        self._given: OrderedDict[EventKey, int] = OrderedDict()
        self._doubtful: dict[EventKey, int] = {}

    def opened(self, last: int, *, exact: bool) -> None:
        """Begin with the last number that the broker has seen; what is above was not stored.

        Without `exact` that number does not speak for all messages: partitions count by themselves.
        """
        self._last = max(self._last, last)
        unanswered = {**self._doubtful, **self._given}
        self._doubtful = {
            event: number for event, number in unanswered.items() if exact and number <= last
        }
        self._given.clear()

    def give(self, event: EventKey) -> int:
        """Return a number for a message that is sent now, and was not before."""
        self._last += 1
        self._given[event] = self._last
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)
        return self._last

    def settled(self, event: EventKey) -> None:
        """Forget the number of a message that was answered."""
        self._given.pop(event, None)

    def doubted(self, event: EventKey) -> int | None:
        """Return the number of an event that the broker has seen but not acknowledged."""
        return self._doubtful.get(event)

    def proven(self, number: int) -> list[EventKey]:
        """Return the events stored for certain, since the broker has acknowledged this number."""
        stored = [event for event, given in self._doubtful.items() if given <= number]
        for event in stored:
            del self._doubtful[event]
        return stored

    def give_up_doubts(self) -> int:
        """Forget all numbers in doubt before a higher one is sent; return how many there were."""
        lost = len(self._doubtful)
        self._doubtful.clear()
        return lost
