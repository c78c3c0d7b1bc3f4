"""Events that may go to the bus at once, in two rows: those of tenants with news go ahead.

Nothing of the usual row is sent while something goes ahead, and what goes ahead has no older event
of its lane in the usual row: so the order of a lane is kept over both.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from pillarbox.projector.store import OutboxEvent


class Batch(NamedTuple):
    """Events to hand to the bus in one call."""

    events: Sequence[OutboxEvent]
    one_by_one: bool = False
    ahead: bool = False


@dataclass(slots=True)
class Ready:
    """Hold what may go, in the order in which it goes."""

    ahead: deque[OutboxEvent] = field(default_factory=deque)
    usual: deque[OutboxEvent] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.usual or self.ahead)

    def hurry(self, count: int, tenants: AbstractSet[str]) -> None:
        """Let these tenants' last events of the usual row go ahead, but none before its lane's."""
        last = [self.usual.pop() for _ in range(count)]
        behind = {event.lane for event in self.usual}
        for event in reversed(last):
            hurries = event.lane[0] in tenants and event.lane not in behind
            (self.ahead if hurries else self.usual).append(event)

    def first(self, events: Iterable[OutboxEvent]) -> None:
        """Put events before the others of the usual row."""
        self.usual.extendleft(reversed(list(events)))

    def drop(self, seqs: Collection[int]) -> None:
        """Let go of events."""
        self.ahead = deque(event for event in self.ahead if event.seq not in seqs)
        self.usual = deque(event for event in self.usual if event.seq not in seqs)
