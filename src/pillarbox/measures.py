"""Counters and histograms, kept in the process; an exporter turns them into text."""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal

OTHER: Final = "_other"
MOST_TENANTS: Final = 100
# Seconds, from a claim on an idle database to a backlog of an hour.
BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 3600.0,
)  # fmt: skip

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's state: how many observations lie at or below each bound, their sum and number."""

    buckets: tuple[tuple[float, int], ...]
    sum: float
    count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric."""

    name: str
    kind: Kind
    value: float | Distribution
    labels: Labels = ()


@dataclass(slots=True)
class Histogram:
    """Count durations by size; one observation is one bisection."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration; a clock that went back counts as none."""
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def value(self) -> Distribution:
        """Return the state as exporters need it."""
        below = list(accumulate(self.counts))
        return Distribution(tuple(zip(BOUNDS, below, strict=False)), self.sum, below[-1])


class Capped:
    """Keep the first values of a label, and call the rest `_other`, so that none grows for ever."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, value: str) -> str:
        """Return the value itself, or `_other` when there are too many."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value
