"""Time, as an argument."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tell the time, aware and in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's time."""
        return datetime.now(UTC)


SYSTEM_CLOCK = SystemClock()
