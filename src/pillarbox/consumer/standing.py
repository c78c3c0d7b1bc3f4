"""How a consumer stands: what it has in hand, what it has finished, what its broker says."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pillarbox.bus.subscription import Outlook
from pillarbox.consumer.lane import InHand


@dataclass(frozen=True, slots=True)
class Standing:
    """How a consumer stands, as far as this member knows.

    `finished` counts what was acknowledged in this run: done, ignored or set aside. `oldest` and
    `newest` are the times of messages: of the oldest that is in hand, and of the newest that was
    finished here. `waiting` counts what the broker has beside; `at_end` is whether the whole
    group has reached the end, and None where nobody knows.
    """

    in_hand: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    waiting: int | None = None
    at_end: bool | None = None
    finished: int = 0

    def seen_from(self, outlook: Outlook) -> "Standing":
        """Return it with what the broker says; whoever has something in hand is not at the end."""
        at_end = False if self.in_hand else outlook.at_end
        return replace(self, waiting=outlook.waiting, at_end=at_end)


Hear = Callable[[Standing, timedelta], Awaitable[None]]
"""Hear how a consumer stood, and how long ago that was; must not raise."""


def standing_of(
    items: Iterable[InHand], newest: Iterable[datetime | None], finished: int
) -> Standing:
    """Return how a member stands, without its broker's word."""
    times = [found.recorded_at for found in items]
    known = [found for found in times if found is not None]
    done = [found for found in newest if found is not None]
    return Standing(
        len(times), min(known, default=None), max(done, default=None), finished=finished
    )
