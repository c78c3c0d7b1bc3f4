"""What keeps an event that is ready from going to the bus now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pillarbox.projector.breaker import TopicBreakers
from pillarbox.projector.hand import Hand
from pillarbox.projector.lanes import Lanes
from pillarbox.projector.store import OutboxEvent


@dataclass(frozen=True, slots=True)
class Gate:
    """Choose what may go; what may not is laid to rest in its lane.

    Everything here is the work's own: `alone` are the events that go one by one, `flying` those that
    are in a call.
    """

    hand: Hand
    lanes: Lanes
    topics: TopicBreakers
    alone: set[int]
    flying: dict[int, OutboxEvent]

    def that_may_go(self, events: Iterable[OutboxEvent], now: float) -> list[OutboxEvent]:
        """Lay events to rest behind a failure of their lane, or whose topic's breaker is open."""
        go = []
        for event in events:
            breaker = self.topics.get(event.topic)
            if event.lane not in self.lanes.failing and (
                breaker is None or breaker.trying or breaker.lets_through(now)
            ):
                go.append(event)
            else:
                self.lanes.failed(event)
        return go

    def worth_sending(
        self, events: Iterable[OutboxEvent], now: float
    ) -> tuple[list[OutboxEvent], list[OutboxEvent]]:
        """Tell what may go from what has expired; what is unreadable is to be refused alone."""
        go, expired = [], []
        for event in events:
            if self.hand.has_expired(event, now):
                self.topics.not_tried(event.topic)
                expired.append(event)
            elif event.unreadable:
                self.topics.not_tried(event.topic)
                self.alone.add(event.seq)
                self.lanes.failed(event)
            else:
                go.append(event)
        return go, expired

    def still_to_go(self, events: Iterable[OutboxEvent]) -> Sequence[OutboxEvent]:
        """Leave out events that were dropped, or whose lane has failed, since they were chosen."""
        failing, flying = set(self.lanes.failing), self.flying
        events = [event for event in events if flying.get(event.seq) is event]
        for event in [event for event in events if event.lane in failing] if failing else ():
            del flying[event.seq]
            self.topics.not_tried(event.topic)
            self.lanes.failed(event)
        return [event for event in events if event.lane not in failing]
