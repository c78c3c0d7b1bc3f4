"""How far a rebuild is, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

Phase = Literal["filling", "switching", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rebuild is: its position, the newest one, events so far, and their rate now."""

    model: str
    phase: Phase
    position: int
    target: int
    events: int
    events_per_second: float

    @property
    def share(self) -> float:
        """How much of the way is done, from 0 to 1."""
        return min(self.position / self.target, 1.0) if self.target else 1.0

    @property
    def remaining(self) -> timedelta | None:
        """About how long it takes from here; None while nobody can say."""
        if self.position >= self.target:
            return timedelta(0)
        if not self.events_per_second:
            return None
        return timedelta(seconds=(self.target - self.position) / self.events_per_second)


Reporter = Callable[[Progress], None]
"""Told of each batch of a rebuild; it must be quick, and what it raises ends the rebuild."""


def unheard(progress: Progress) -> None:
    """Report to nobody."""
    del progress
