"""The named points at which a process kills itself; here those of a projector."""

from collections.abc import Mapping
from typing import Final, NamedTuple

# How long after its announcement a step is surely under way, and not yet over.
POINTS: Final = {
    "after-read": 0.0005,
    "after-claim": 0.0,
    "before-send": 0.0,
    "after-send": 0.0005,
    "after-ack": 0.0,
    "mid-settle": 0.0005,
    "lease-renewal": 0.0005,
}


class FailPoint(NamedTuple):
    """Where, at which time and how late a process kills itself."""

    name: str
    times: int
    delay: float

    @classmethod
    def parse(cls, words: str, points: Mapping[str, float] = POINTS) -> "FailPoint":
        """Read NAME:N or NAME:N:SECONDS."""
        name, times, *delay = words.split(":")
        return cls(name, int(times), float(delay[0]) if delay else points[name])
