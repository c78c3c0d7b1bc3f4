"""Lanes: the order of each key between reading and settling."""

from collections import deque
from collections.abc import Container, Iterable

from pillarbox.projector.store import Lane, OutboxEvent


class _State:
    """What a lane has in flight, what waits behind it, and what failed and must go again."""

    __slots__ = ("again", "flying", "topic", "waiting")

    def __init__(self, topic: str | None) -> None:
        self.topic = topic
        self.flying = 1
        self.waiting: deque[OutboxEvent] = deque()
        self.again: list[OutboxEvent] = []


class Lanes:
    """Let events of a key go one after the other, or together where the bus keeps their order.

    Together only for one topic, and only while nothing of the lane failed. After a failure nothing
    more of the lane may go; when nothing of it is in flight it rests, and `next_of` begins again
    with what failed. What was let go of counts as in flight, although it may not be sent yet.
    """

    def __init__(self, *, together: bool) -> None:
        self._together = together
        # Most lanes have one event and end with it: that event stands for the state.
        self._states: dict[Lane, _State | OutboxEvent] = {}
        self.resting: dict[Lane, None] = {}
        self.failing: set[Lane] = set()

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._states

    def admit(self, event: OutboxEvent) -> bool:
        """Take an event in; tell whether it goes at once."""
        if event.lane not in self._states:
            self._states[event.lane] = event
            return True
        state = self._state(event.lane)
        if self._together and state.topic == event.topic and not (state.waiting or state.again):
            state.flying += 1
            return True
        state.waiting.append(event)
        return False

    def reserve(self, event: OutboxEvent) -> bool:
        """Give an event a lane for itself until it has arrived; False: the lane is in use."""
        if event.lane in self._states:
            return False
        self._states[event.lane] = _State(None)
        return True

    def accepted(self, event: OutboxEvent) -> list[OutboxEvent]:
        """Note that an event arrived; return what goes next."""
        if self._states[event.lane] is event:
            del self._states[event.lane]
            return []
        state = self._state(event.lane)
        state.flying -= 1
        if state.flying:
            return []
        if state.again:
            self._rest(event.lane, state)
            return []
        if not state.waiting:
            del self._states[event.lane]
            return []
        return self._next(state)

    def failed(self, event: OutboxEvent) -> None:
        """Note that an event must go again, before everything behind it."""
        state = self._state(event.lane)
        state.flying -= 1
        state.again.append(event)
        if state.flying:
            self.failing.add(event.lane)
        else:
            self._rest(event.lane, state)

    def has_only(self, event: OutboxEvent) -> bool:
        """Tell whether nothing else of an event's lane is in flight or has failed."""
        state = self._state(event.lane)
        return state.flying == 1 and not state.again

    def stop(self, lane: Lane) -> list[OutboxEvent]:
        """End a lane that rests, or whose only event in flight will not arrive; return what waits."""
        self.resting.pop(lane, None)
        waiting = self._state(lane).waiting
        del self._states[lane]
        return list(waiting)

    def head(self, lane: Lane) -> OutboxEvent:
        """Return the event that a resting lane begins with."""
        return self._state(lane).waiting[0]

    def next_of(self, lane: Lane, alone: Container[int] = ()) -> list[OutboxEvent]:
        """Let a resting lane go on; an event that must go alone goes alone."""
        del self.resting[lane]
        state = self._state(lane)
        if state.waiting[0].seq in alone:
            return self._fly(state, [state.waiting.popleft()])
        return self._next(state, alone)

    def forget(self, lanes: Iterable[Lane]) -> None:
        """Forget lanes with all their events."""
        for lane in lanes:
            self._states.pop(lane, None)
            self.resting.pop(lane, None)
            self.failing.discard(lane)

    def _state(self, lane: Lane) -> _State:
        """Return the state of a lane, made from its only event when more is to be said."""
        state = self._states[lane]
        if not isinstance(state, _State):
            state = self._states[lane] = _State(state.topic)
        return state

    def _rest(self, lane: Lane, state: _State) -> None:
        state.waiting.extendleft(sorted(state.again, key=_by_number, reverse=True))
        state.again = []
        self.failing.discard(lane)
        self.resting[lane] = None

    def _next(self, state: _State, alone: Container[int] = ()) -> list[OutboxEvent]:
        batch = [state.waiting.popleft()]
        while (
            self._together
            and state.waiting
            and state.waiting[0].topic == batch[0].topic
            and state.waiting[0].seq not in alone
        ):
            batch.append(state.waiting.popleft())
        return self._fly(state, batch)

    def _fly(self, state: _State, batch: list[OutboxEvent]) -> list[OutboxEvent]:
        state.topic, state.flying = batch[0].topic, len(batch)
        return batch


class Stops:
    """Know which events must not pass because their key is being blocked in the database.

    A stop holds back what is above its number, until it is written and every claim that was asked
    for before that is digested: from then on a claim itself tells what is blocked. What is not above
    it passes, since it comes back.
    """

    def __init__(self) -> None:
        self._to_write: dict[Lane, int] = {}
        self._being_written: dict[Lane, int] = {}
        self._written: list[tuple[int, dict[Lane, int]]] = []

    def __bool__(self) -> bool:
        return bool(self._to_write or self._being_written or self._written)

    def add(self, lane: Lane, seq: int) -> None:
        """Stop a lane behind an event."""
        self._to_write[lane] = min(seq, self._to_write.get(lane, seq))

    def hold(self, event: OutboxEvent) -> bool:
        """Tell whether an event must not pass."""
        stops = (self._to_write, self._being_written, *(stops for _, stops in self._written))
        return any(event.seq > at.get(event.lane, event.seq) for at in stops)

    def writing(self) -> None:
        """Note that the stops so far are being written."""
        self._being_written, self._to_write = self._to_write, {}

    def written(self, asked: int) -> None:
        """Note that they are written, and how many claims were asked for by then."""
        if self._being_written:
            self._written.append((asked, self._being_written))
            self._being_written = {}

    def digested(self, claims: int) -> None:
        """Forget the stops that every claim from now on sees in the database."""
        self._written = [(asked, stops) for asked, stops in self._written if asked > claims]


def _by_number(event: OutboxEvent) -> int:
    return event.seq
