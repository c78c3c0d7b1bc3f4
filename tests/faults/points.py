"""The named points at which a process kills itself; here those of a projector."""

from collections.abc import Mapping
from typing import Final, NamedTuple

# Each is exact, so there is nothing to wait for. The statement of a claim has not left after a read;
# that of settling or of a renewal has, and its answer has not come; neither has the broker's after a
# send.
POINTS: Final = dict.fromkeys(
    (
        "after-read",
        "after-claim",
        "before-send",
        "after-send",
        "after-ack",
        "mid-settle",
        "lease-renewal",
    ),
    0.0,
)


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
