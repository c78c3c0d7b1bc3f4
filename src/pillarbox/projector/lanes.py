"""Lanes: the order of each key between reading and settling."""

from collections import deque
from collections.abc import Container, Iterable

from pillarbox.projector.store import Lane, OutboxEvent


class _State:
    """What a lane has in flight, what waits behind it, and what failed and must go again."""

    __slots__ = ("again", "flying", "stopped", "topic", "waiting")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.flying = 1
        self.stopped = False
        self.waiting: deque[OutboxEvent] = deque()
        self.again: list[OutboxEvent] = []


class Lanes:
    """Let events of a key go one after the other, or together where the bus keeps their order.

    Together only for one topic, and only while nothing of the lane failed. After a failure a lane
    rests until nothing of it is in flight; then `next_of` begins again with what failed.
    """

    def __init__(self, *, together: bool) -> None:
        self._together = together
        self._states: dict[Lane, _State] = {}
        self.resting: dict[Lane, None] = {}

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._states

    def admit(self, event: OutboxEvent) -> bool:
        """Take an event in; tell whether it goes at once."""
        state = self._states.get(event.lane)
        if state is None:
            self._states[event.lane] = _State(event.topic)
            return True
        if self._together and state.topic == event.topic and not (state.waiting or state.again):
            state.flying += 1
            return True
        state.waiting.append(event)
        return False

    def accepted(self, event: OutboxEvent) -> list[OutboxEvent]:
        """Note that an event arrived; return what goes next."""
        state = self._states[event.lane]
        state.flying -= 1
        if state.flying:
            return []
        if state.stopped:
            del self._states[event.lane]
            return []
        if state.again:
            self._rest(event.lane, state)
            return []
        if not state.waiting:
            del self._states[event.lane]
            return []
        return self._next(state)

    def failed(self, event: OutboxEvent) -> bool:
        """Note that an event must go again, before everything behind it; False: its lane ended."""
        state = self._states[event.lane]
        state.flying -= 1
        if state.stopped:
            if not state.flying:
                del self._states[event.lane]
            return False
        state.again.append(event)
        if not state.flying:
            self._rest(event.lane, state)
        return True

    def stop(self, event: OutboxEvent) -> list[OutboxEvent]:
        """End a lane because of an event in flight that will not arrive; return what waits behind.

        The lane stays, stopped, until everything that is in flight behind the event has answered.
        """
        state = self._states[event.lane]
        state.flying -= 1
        return self._stop(event.lane, state)

    def stop_resting(self, lane: Lane) -> list[OutboxEvent]:
        """End a resting lane; return its events."""
        return self._stop(lane, self._states[lane])

    def _stop(self, lane: Lane, state: _State) -> list[OutboxEvent]:
        behind = [*state.again, *state.waiting]
        state.stopped, state.again, state.waiting = True, [], deque()
        self.resting.pop(lane, None)
        if not state.flying:
            del self._states[lane]
        return behind

    def head(self, lane: Lane) -> OutboxEvent:
        """Return the event that a resting lane begins with."""
        return self._states[lane].waiting[0]

    def next_of(self, lane: Lane, alone: Container[int] = ()) -> list[OutboxEvent]:
        """Let a resting lane go on; an event that must go alone goes alone."""
        del self.resting[lane]
        state = self._states[lane]
        if state.waiting[0].seq in alone:
            return self._fly(state, [state.waiting.popleft()])
        return self._next(state, alone)

    def forget(self, lanes: Iterable[Lane]) -> None:
        """Forget lanes with all their events."""
        for lane in lanes:
            self._states.pop(lane, None)
            self.resting.pop(lane, None)

    def _rest(self, lane: Lane, state: _State) -> None:
        state.waiting.extendleft(sorted(state.again, key=_by_number, reverse=True))
        state.again = []
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


def _by_number(event: OutboxEvent) -> int:
    return event.seq
