"""What is in hand: from a claim to its settlement, decided without input or output.

The loop asks this object what to send, tells it what the bus answered, and takes from it what to
write. Times are the loop's, in seconds.
"""

import random
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, assert_never
from uuid import UUID

from pillarbox.bus.outcome import ACCEPTED, Accepted, PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.outbox.release import EXPIRED
from pillarbox.projector.breaker import Breaker, TopicBreakers
from pillarbox.projector.caution import Caution
from pillarbox.projector.gate import Gate
from pillarbox.projector.hand import Hand
from pillarbox.projector.lanes import Lanes, Stops
from pillarbox.projector.ready import Batch, Ready
from pillarbox.projector.store import (
    KILLER,
    UNREADABLE,
    Failure,
    OutboxEvent,
    Settled,
    Settlement,
    Suspects,
)
from pillarbox.retry import RetryPolicy

# Events that are sent to find out whether a bus answers again, and the least of a small step.
TRY: Final = 50
# So many outcomes are worth a statement of their own.
_MANY: Final = 64
_EXPIRED: Final = Failure(EXPIRED, "expires_at has passed")
_UNREADABLE: Final = (
    "its headers are no JSON object of texts, or its time is none of the years 1 to 9999"
)
_KILLER: Final = Failure(KILLER, "its projector died each time it was the only event in flight")


@dataclass(slots=True)
class Work:
    """Hold the events between reading and settling."""

    together: bool
    policy: RetryPolicy
    chance: random.Random
    batch_size: int
    bytes_in_hand: int
    bus: Breaker = field(default_factory=Breaker)
    topics: TopicBreakers = field(default_factory=TopicBreakers)
    hand: Hand = field(default_factory=Hand)
    shut: frozenset[tuple[str, str]] = frozenset()
    _lanes: Lanes = field(init=False)
    _ready: Ready = field(default_factory=Ready)
    _news: set[int] = field(default_factory=set)
    _alone: set[int] = field(default_factory=set)
    _flying: dict[int, OutboxEvent] = field(default_factory=dict)
    _settlement: Settlement = field(default_factory=Settlement)
    _stops: Stops = field(default_factory=Stops)
    _asked: int = 0
    _digested: int = 0
    _met_odd: bool = False
    _caution: Caution = field(default_factory=Caution)
    _gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self._lanes = Lanes(together=self.together)
        self._gate = Gate(self.hand, self._lanes, self.topics, self._alone, self._flying)

    # Claiming

    def room(self, most: int, now: float, part: int = 1) -> int:
        """Return how many events to claim next; 0 when enough is in hand, or the bus is down.

        A bus that is down is tried with what is in hand; only with an empty hand with a few others.
        With `part` everything goes in smaller steps, of a batch's part or a few events, and less is
        in hand; news does not count there, since it may come without end.
        """
        if not self.bus.closed:
            return 0 if self.hand or now < self.bus.again_at else min(TRY, self.batch_size)
        if self._caution:
            return 0 if self.hand else self._caution.step(self.batch_size)
        batch = max(self.batch_size // part, min(self.batch_size, TRY))
        if self.hand.size >= self.bytes_in_hand or most - len(self.hand) < batch:
            return 0
        self._news.intersection_update(self.hand.seqs)
        others = len(self.hand) - len(self._news)
        return batch if part == 1 or max(most // part, 2 * batch) - others >= batch else 0

    def suspect(self, suspects: Suspects) -> None:
        """Be careful: a dead owner had these events in flight."""
        self._caution.suspect(suspects)

    def asking(self, now: float) -> None:
        """Note that a claim is being asked for; what is blocked from now on it may not know."""
        self._asked += 1
        self.hand.asking(now)

    def claimed(
        self,
        claim_id: UUID,
        events: Sequence[OutboxEvent],
        epochs: Mapping[int, int],
        now: float,
        *,
        ahead: AbstractSet[str] = frozenset(),
    ) -> Sequence[OutboxEvent]:
        """Take in the events of a claim, made under leases of these epochs; return what is to be sent.

        What the tenants of `ahead` have goes before what is ready.
        """
        self._digested = self._asked
        events = going = self.hand.without_fenced(events, epochs)
        if events:
            self.hand.take(claim_id, events, epochs, now)
            before = len(self._ready.usual)
            going = self._sort_all(events)
            if ahead:
                self._news.update(event.seq for event in events if event.lane[0] in ahead)
                self._ready.hurry(len(self._ready.usual) - before, ahead)
        self._caution.claimed(len(events))
        self._stops.digested(self._digested)
        return going

    def _sort_all(self, events: Sequence[OutboxEvent]) -> Sequence[OutboxEvent]:
        """Decide on events in their order; most of them may simply go. Return those that are to."""
        left = set[int]()
        simple = not (self._stops or self.shut or self._caution.alone is not None)
        admit, ready = self._lanes.admit, self._ready.usual
        for event in events:
            if not simple or event.blocked or event.expires_in is not None or event.unreadable:
                simple = False  # it may stop a lane
                if not self._sort(event):
                    left.add(event.seq)
            elif admit(event):
                ready.append(event)
        return [event for event in events if event.seq not in left] if left else events

    def _sort(self, event: OutboxEvent) -> bool:
        """Decide where a claimed event goes first; tell whether that is to the bus."""
        self._met_odd |= event.unreadable or event.expires_in is not None
        if event.expires_in is not None and event.expires_in <= 0:
            self._settlement.dead.append((event, _EXPIRED))
            return False
        if event.blocked or (self._stops and self._stops.hold(event)):
            # Its key may be released meanwhile; then those behind it must not pass it.
            self._set_aside(event, [event])
            return False
        if self.shut and self.shut & {(event.lane[0], event.topic), ("*", event.topic)}:
            self._wait_for_topic(event, [])
            return False
        if event.seq == self._caution.alone and self._lanes.reserve(event):
            self._caution.counted()
            self._flying[event.seq] = event
            self._settlement.counted.append(event)
        elif self._lanes.admit(event):
            self._ready.usual.append(event)
        return True

    # Sending

    @property
    def rests(self) -> bool:
        """Whether something waits that a later try may send."""
        return bool(self._lanes.resting or self._ready)

    @property
    def hurries(self) -> bool:
        """Whether something waits that goes ahead of others."""
        return bool(self._ready.ahead)

    def next_batch(self, now: float, *, filled: bool = False) -> Batch | None:
        """Return what to send now, if anything.

        A batch of what goes ahead has nothing else in it, unless it is to be `filled`.
        """
        if not self.rests or not self.bus.lets_through(now):
            return None
        batch = self._alone_batch(now) or self._ready_batch(now, filled=filled)
        if batch is None:
            self.bus.trying = False  # there was nothing to try with
            return None
        for event in batch.events:
            self._flying[event.seq] = event
        return batch

    def _ready_batch(self, now: float, *, filled: bool) -> Batch | None:
        for lane in list(self._lanes.resting):
            if self.topics.lets_through(self._lanes.head(lane).topic, now):
                self._ready.first(self._lanes.next_of(lane, self._alone))
        most = self.batch_size if self.bus.closed else min(TRY, self.batch_size)
        events = self._next_of(self._ready.ahead, most, now)
        if events and not filled:
            return Batch(events, ahead=True)
        events += self._next_of(self._ready.usual, most - len(events), now)
        return Batch(events) if events else None

    def _next_of(self, row: deque[OutboxEvent], most: int, now: float) -> list[OutboxEvent]:
        """Take events off a row until there are enough that may go, or none is left."""
        found: list[OutboxEvent] = []
        while row and len(found) < most:
            events = [row.popleft() for _ in range(min(len(row), most - len(found)))]
            if self._met_odd:
                events = self._worth_sending(events, now)
            if self.topics or self._lanes.failing:
                events = self._gate.that_may_go(events, now)
            found = found + events if found else events
        return found

    def _alone_batch(self, now: float) -> Batch | None:
        """Collect the resting events that must go one by one, at most one of each lane."""
        if not self._alone:
            return None
        events = []
        for lane in list(self._lanes.resting):
            head = self._lanes.head(lane)
            if head.seq in self._alone and self.topics.lets_through(head.topic, now):
                events += self._lanes.next_of(lane, self._alone)
        for event in [event for event in events if event.unreadable]:
            events.remove(event)
            self.topics.not_tried(event.topic)
            self._refused(event, UNREADABLE, _UNREADABLE)
        events = self._worth_sending(events, now)
        return Batch(events, one_by_one=True) if events else None

    def _worth_sending(self, events: Sequence[OutboxEvent], now: float) -> list[OutboxEvent]:
        """Return what is worth sending; give up what has expired, lay to rest what is unreadable."""
        go, expired = self._gate.worth_sending(events, now)
        for event in expired:
            self._alone.discard(event.seq)
            self._ready.usual.extend(self._lanes.accepted(event))
            self._settlement.dead.append((event, _EXPIRED))
        return go

    def starting(self, batch: Batch) -> Batch:
        """Leave out events that were dropped, or whose lane has failed, since the batch was made.

        An earlier call may be answered before this one begins, and a bus keeps the order of calls
        that overlap: what is behind a failure would overtake it.
        """
        events = self._gate.still_to_go(batch.events)
        if not events:
            self.bus.trying = False  # it was to be the try, perhaps
        return batch._replace(events=events)

    # Answers

    def answered(
        self, batch: Batch, outcomes: Sequence[PublishOutcome], now: float
    ) -> Sequence[OutboxEvent]:
        """Take in what the bus said of a batch; return what has arrived."""
        before = len(self._settlement.sent)
        if self.bus.closed and not self.topics and outcomes.count(ACCEPTED) == len(outcomes):
            self._all_sent(batch.events)
            return self._settlement.sent[before:]
        # Without any answer the whole bus may be down; beside an answer it was held back.
        silent = not any(isinstance(outcome, Accepted | Refused) for outcome in outcomes)
        for event, outcome in zip(batch.events, outcomes, strict=True):
            # An answer may be for an earlier copy, sent before its lease was lost and taken again.
            if self._flying.get(event.seq) is event:
                del self._flying[event.seq]
                self._answer(event, outcome, now, silent=silent)
        if lasting := self.topics.lasting():
            # In hand they would keep their shards, their claims and a stop waiting.
            self.spill(lasting)
        return self._settlement.sent[before:]

    def _all_sent(self, events: Iterable[OutboxEvent]) -> None:
        """Do what `_answer` does for accepted events; most batches come this way."""
        lanes, ready, flying = self._lanes, self._ready.usual, self._flying
        sent = self._settlement.sent
        for event in events:
            if flying.get(event.seq) is event:
                del flying[event.seq]
                if following := lanes.accepted(event):
                    ready.extend(following)
                sent.append(event)
        if self._alone:
            self._alone.difference_update(event.seq for event in events)

    def _answer(
        self, event: OutboxEvent, outcome: PublishOutcome, now: float, *, silent: bool
    ) -> None:
        match outcome:
            case Accepted():
                self._destination_answers(event)
                self._alone.discard(event.seq)
                self._ready.usual.extend(self._lanes.accepted(event))
                self._settlement.sent.append(event)
            case Refused(certain=False):
                self._destination_answers(event)
                self._alone.add(event.seq)
                self._lanes.failed(event)
            case Refused(code, reason):
                self._destination_answers(event)
                self._refused(event, code, reason)
            case Unavailable(topic=str(topic)):
                self.bus.succeeded()
                self.topics.failed(topic, now)
                self._lanes.failed(event)
            case Unavailable() | Unknown():
                if silent:
                    self.bus.failed(now)
                self.topics.not_tried(event.topic)
                self._lanes.failed(event)
            case _:
                assert_never(outcome)

    def _destination_answers(self, event: OutboxEvent) -> None:
        self.bus.succeeded()
        self.topics.pop(event.topic, None)

    def _refused(self, event: OutboxEvent, code: str, reason: str) -> None:
        """Stop the lane: the event is FAILED or DEAD, and what is behind it is set aside."""
        if not self._lanes.has_only(event):
            # One before it may fail yet, and would then be the one that blocks the key.
            self._alone.add(event.seq)
            self._lanes.failed(event)
            return
        self._alone.discard(event.seq)
        delay = self.policy.after(event.attempts + 1, self.chance)
        failures = self._settlement.dead if delay is None else self._settlement.failed
        failures.append((event, Failure.told(code, reason, delay)))
        self._stop_behind(event)

    def _stop_behind(self, event: OutboxEvent) -> None:
        """Stop the lane of an event that blocks its key; nothing of it waits for a topic any more."""
        waiting = self._settlement.waiting
        behind = [other for other in waiting if other.lane == event.lane]
        waiting[:] = [other for other in waiting if other.lane != event.lane]
        self._set_aside(event, behind + self._lanes.stop(event.lane))

    def _set_aside(self, event: OutboxEvent, behind: Sequence[OutboxEvent]) -> None:
        self._settlement.aside.extend(behind)
        self._alone.difference_update(event.seq for event in behind)
        self._stops.add(event.lane, event.seq)

    def spill(self, topics: Container[str]) -> None:
        """Set aside what rests for topics that cannot be had, so that others find room."""
        for lane in list(self._lanes.resting):
            if self._lanes.head(lane).topic in topics:
                head, *behind = self._lanes.stop(lane)
                self._wait_for_topic(head, behind)

    def _wait_for_topic(self, event: OutboxEvent, behind: Sequence[OutboxEvent]) -> None:
        self._settlement.waiting.append(event)
        self._set_aside(event, behind)

    # Settling

    @property
    def to_settle(self) -> bool:
        """Whether there are outcomes to write."""
        return bool(self._settlement)

    @property
    def settles_at_once(self) -> bool:
        """Whether the outcomes should not wait for others: they are many, or others wait for them."""
        return len(self._settlement.sent) >= _MANY or self._settlement.troubled

    def take_settlement(self) -> tuple[Settlement, dict[int, int]]:
        """Hand out the outcomes so far with the claims that end, and the leases to rely on."""
        settlement, self._settlement = self._settlement, Settlement()
        self._stops.writing()
        return settlement, self.hand.settling(settlement)

    def settled(
        self, settlement: Settlement, result: Settled
    ) -> tuple[tuple[OutboxEvent, ...], int]:
        """Let go of what is written; return the events that must be read again.

        Also tell how many were dropped, of these and of others, since their lease is lost.
        """
        dropped = self.hand.settled(settlement, result.lost)
        self._stops.written(self._asked)
        self._stops.digested(self._digested)
        for event in settlement.counted:
            self._counted(event)
        lost = self.hand.fenced(result.lost)
        dropped += self.drop(lost) if lost else 0
        # What failed may have come back before this answer, and was passed over as being in hand.
        return (*result.again, *(event for event, _ in settlement.failed)), dropped

    def _counted(self, event: OutboxEvent) -> None:
        """Send a suspect whose attempt is counted now, or give it up."""
        if self._flying.get(event.seq) is not event:
            return  # its lease was lost meanwhile
        del self._flying[event.seq]
        again = event._replace(attempts=event.attempts + 1)
        if self.policy.after(again.attempts, self.chance) is None:
            self._settlement.dead.append((again, _KILLER))
            self._stop_behind(again)
        else:
            self._ready.usual.append(again)

    def drop(self, shards: frozenset[int]) -> int:
        """Let go of the events of lost shards; answers that come for them are ignored."""
        gone = self.hand.drop(shards, self._settlement)
        for seq in gone:
            self._flying.pop(seq, None)
        self._ready.drop(gone)
        self._lanes.forget(event.lane for event in gone.values())
        self._alone.difference_update(gone)
        for breaker in (self.bus, *self.topics.values()):
            breaker.trying = False  # the try may be among what is gone
        return len(gone)
