"""When things happen: everything within the time that was given, or at leisure without one."""

from dataclasses import dataclass
from typing import Final

_OUTAGE: Final = 10.0
_REST: Final = 90.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds: of the run, between two troubles, of the outage, and for coming to rest.

    After an outage, as after a kill, it takes some seconds until all that waited has come to its
    end, so the last third is kept for that.
    """

    limit: float | None
    pause: float
    outage: float
    rest: float

    @classmethod
    def of(cls, seconds: float | None) -> "Plan":
        """Make the plan for so many seconds.

        >>> Plan.of(30)
        Plan(limit=30, pause=0.75, outage=10.0, rest=90.0)
        """
        if seconds is None:
            return cls(None, 8.0, _OUTAGE, _REST)
        return cls(seconds, max(seconds / 40, 0.5), min(_OUTAGE, seconds / 3), _REST)

    def order_seconds(self, passed: float) -> float | None:
        """Return how long customers go on ordering from now on; None is until somebody ends it."""
        return None if self.limit is None else max(self.limit * 0.65 - passed, 0.0)
