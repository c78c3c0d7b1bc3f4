"""From commit to acknowledgement: a writer and our projector, each in a process of its own."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

Stamps = Sequence[tuple[str, int]]

LIMITS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 25, 50)
"""The upper ends of the histogram's buckets, in milliseconds."""


class Arrival(NamedTuple):
    """Milliseconds from the writer's return from commit to the broker's acknowledgement."""

    p50: float
    p99: float
    events: int
    shares: tuple[float, ...] = ()
    """The share of the events that waited no longer than each of the limits."""


def arrival(commits: Path, acks: Path) -> Arrival:
    """Join what writer and projector noted; both read the same clock of one machine."""
    committed: Stamps = json.loads(commits.read_text())
    acknowledged: dict[str, int] = dict(reversed(json.loads(acks.read_text())))
    waited = sorted((acknowledged[event_id] - at) / 1e6 for event_id, at in committed)
    shares = tuple(bisect_right(waited, limit) / len(waited) for limit in LIMITS)
    return Arrival(_quantile(waited, 0.5), _quantile(waited, 0.99), len(waited), shares)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
