"""How far a rebuild is, for whoever shows it."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

Phase = Literal["filling", "switching", "done"]

_WINDOW: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a rebuild is: where it began, its position, the end, and how fast it goes now.

    A model that follows the log has the numbers of its rows as positions; one that follows a
    subscription counts messages. `target` is the end as far as it is known by now, and None while
    nobody knows it. `events` counts those that were taken; rates are those of the last ten seconds.
    """

    model: str
    phase: Phase
    position: int
    target: int | None
    start: int = 0
    events: int
    events_per_second: float
    positions_per_second: float

    @property
    def share(self) -> float | None:
        """How much of the way is done, from 0 to 1; None while nobody knows the end."""
        if self.target is None:
            return None
        way = self.target - self.start
        return min((self.position - self.start) / way, 1.0) if way > 0 else 1.0

    @property
    def remaining(self) -> timedelta | None:
        """About how long it takes from here; None while nobody can say."""
        if self.target is None:
            return None
        if self.position >= self.target:
            return timedelta(0)
        if not self.positions_per_second:
            return None
        return timedelta(seconds=(self.target - self.position) / self.positions_per_second)


Reporter = Callable[[Progress], None]
"""Told of each batch of a rebuild; it must be quick, and what it raises ends the rebuild."""


def unheard(progress: Progress) -> None:
    """Report to nobody."""
    del progress


@dataclass(slots=True)
class Pace:
    """How fast positions and events went by, over the last ten seconds."""

    position: int
    events: int
    now: Callable[[], float] = time.monotonic
    _seen: deque[tuple[float, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = deque([(self.now(), self.position, self.events)])

    def at(self, position: int, events: int) -> tuple[float, float]:
        """Note where it is now; return positions and events a second."""
        now = self.now()
        while len(self._seen) > 1 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()
        then, first, before = self._seen[0]
        self._seen.append((now, position, events))
        passed = max(now - then, 1e-9)
        return (position - first) / passed, (events - before) / passed
