"""A broker that fails at will, and keeps the contract of `Capabilities.pipelines_keys` if asked to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.projector.ready import Batch
from pillarbox.projector.store import Lane, OutboxEvent

Where = tuple[str, Lane]


@dataclass(slots=True, eq=False)
class Call:
    """One call of publish, its outcomes as they become known, and what may not be stored."""

    batch: Batch
    outcomes: list[PublishOutcome | None]
    held_back: set[int] = field(default_factory=set)

    def unresolved(self) -> Iterator[int]:
        return (place for place, known in enumerate(self.outcomes) if known is None)


@dataclass(slots=True)
class Broker:
    """Store messages, or refuse, lose and misjudge them."""

    chance: Random
    pipelines: bool
    stored: Callable[[OutboxEvent], None]
    down: bool = False
    missing: set[str] = field(default_factory=set)
    bad: dict[int, int] = field(default_factory=dict)
    faults: float = 0.2
    calls: list[Call] = field(default_factory=list)
    _failures: dict[Where, set[int]] = field(default_factory=dict)

    def publish(self, batch: Batch) -> None:
        """Take over a batch; nothing of it is decided yet."""
        call = Call(batch, [None] * len(batch.events))
        for place, event in enumerate(batch.events):
            if self.pipelines and self._failures.get(_where(event)):
                call.held_back.add(place)
                self._failures[_where(event)].add(id(call))
        self.calls.append(call)

    def step(self) -> None:
        """Decide on one message of one call; of a topic and key only on the first."""
        heads: dict[Where, tuple[Call, int]] = {}
        free: list[tuple[Call, int]] = []
        for call in self.calls:
            for place in call.unresolved():
                where = _where(call.batch.events[place])
                if not self.pipelines or where not in heads:
                    heads[where] = call, place
                    free.append((call, place))
        if free:
            self._resolve(*self.chance.choice(free))

    def finish(self, call: Call) -> list[PublishOutcome]:
        """Decide on the rest of a call, and answer it."""
        while None in call.outcomes:
            self.step()
        for calls in self._failures.values():
            calls.discard(id(call))
        self.calls.remove(call)
        return [outcome for outcome in call.outcomes if outcome is not None]

    def _resolve(self, call: Call, place: int) -> None:
        event = call.batch.events[place]
        outcome = self._outcome(call, place, event)
        if outcome == Refused("together", "one of them", certain=False):
            for other in list(call.unresolved()):
                self._note(call, other, outcome)
            return
        may_be_stored = place not in call.held_back
        if outcome is ACCEPTED or (
            may_be_stored and isinstance(outcome, Unknown) and self.chance.random() < 0.5
        ):
            self.stored(event)
        self._note(call, place, outcome)

    def _outcome(self, call: Call, place: int, event: OutboxEvent) -> PublishOutcome:
        if self.bad.get(event.seq, 0) and self.chance.random() < 0.8:
            together = not call.batch.one_by_one and self.chance.random() < 0.5
            if together:
                return Refused("together", "one of them", certain=False)
            self.bad[event.seq] -= 1
            return Refused("too-large", "it is")
        if event.topic in self.missing:
            return Unavailable("missing", "no such topic", event.topic)
        if self.down:
            silent = self.chance.random() < 0.5
            return Unknown("late", "no answer") if silent else Unavailable("down", "it is")
        if place in call.held_back:
            return Unknown("purged", "one before it failed")
        return Unknown("late", "no answer") if self.chance.random() < self.faults else ACCEPTED

    def _note(self, call: Call, place: int, outcome: PublishOutcome) -> None:
        call.outcomes[place] = outcome
        if outcome is ACCEPTED or not self.pipelines:
            return
        where = _where(call.batch.events[place])
        for other in self.calls:
            for behind in other.unresolved():
                if _where(other.batch.events[behind]) == where:
                    other.held_back.add(behind)
                    self._failures.setdefault(where, set()).add(id(other))
        self._failures.setdefault(where, set()).add(id(call))


def _where(event: OutboxEvent) -> Where:
    return event.topic, event.lane
