"""Tenants with news beside tenants with a backlog: who is claimed next, and in which steps.

What comes to a tenant without a backlog is claimed and sent ahead of the backlog. For a while after
that the backlog goes in small steps with rests between them, so that the next news finds neither the
loop nor the database busy.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

SMALL_STEPS: Final = 32
CALLS: Final = 2
_MIXED_FOR: Final = 5.0
_REST: Final = 6.0  # times the time that the step's claim took: longer where the database is busy
_LONGEST_REST: Final = 0.05
# Looking for news where there is none becomes rarer: the tenants with a backlog may write, too. Once
# in vain is no sign of it: a claim for everything may just have taken the news that was told of.
_PAUSES: Final = (0.0, 0.0, 0.01, 0.02, 0.04, 0.08, 0.1)


class Call(Enum):
    """What the next call of the bus may carry."""

    NOTHING = "nothing"
    NEWS = "news, or what is ready if there is none"
    BOTH = "news, filled up with what is ready"


def next_call(at_work: int, with_news: int, most: int, *, news: bool) -> Call:
    """Decide on one more call beside those at work; calls with news alone have some of their own.

    News shares the next one when all that are at work are news: without end it would take every one.
    """
    others = at_work - with_news
    if others >= most:
        return Call.NEWS if news and with_news < CALLS else Call.NOTHING
    if at_work >= most + CALLS:
        return Call.NOTHING
    return Call.BOTH if with_news >= CALLS and not others else Call.NEWS


@dataclass(slots=True)
class Mixture:
    """Decide between news and backlog; times are the loop's, in seconds."""

    behind: bool = False
    """Whether something waits that no claim has taken."""
    _mixed_until: float = 0.0
    _backlog_at: float = 0.0
    _news_at: float = 0.0
    _in_vain: int = 0

    def mixed(self, now: float) -> bool:
        """Tell whether some tenants have a backlog and others had news lately."""
        return now < self._mixed_until

    def news_in(self, now: float) -> float:
        """Return the seconds until it is worth looking for news, if there was a wake-up."""
        return self._news_at - now

    def rest(self, now: float) -> float:
        """Return the seconds until the backlog may be claimed."""
        return self._backlog_at - now if self.behind and self.mixed(now) else 0.0

    def looked(self, now: float, *, found: bool) -> None:
        """Note that news was looked for."""
        self._in_vain = 0 if found else min(self._in_vain + 1, len(_PAUSES) - 1)
        self._news_at = now + _PAUSES[self._in_vain]

    def stepped(self, now: float, *, took: float, more: bool) -> None:
        """Note that everything was claimed for, which took so long."""
        self.behind = more
        self._backlog_at = now + min(took * _REST, _LONGEST_REST)

    def met(self, now: float) -> None:
        """Note that something came to a tenant without a backlog, beside others."""
        self._mixed_until = now + _MIXED_FOR
        self._news_at, self._in_vain = now, 0
