"""Event ids: UUIDs of version 7, made once in the producing transaction and never changed."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from pillarbox.clock import SYSTEM_CLOCK, Clock

IdMaker = Callable[[], UUID]
RandomBytes = Callable[[int], bytes]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
VERSION: Final = 7
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_AFTER_TIME: Final = 80  # the bits that follow the milliseconds
_VERSION: Final = VERSION << 76
_VARIANT: Final = 2 << 62


def id_maker(clock: Clock = SYSTEM_CLOCK, random_bytes: RandomBytes = os.urandom) -> IdMaker:
    """Make a maker of ids that rise with the clock, down to a quarter of a microsecond."""

    def make() -> UUID:
        micros = (clock.now() - EPOCH) // _MICROSECOND
        millis, rest = divmod(micros, 1000)
        # Twelve bits below the millisecond keep the ids of one process nearly sorted.
        low = int.from_bytes(random_bytes(8), "big") >> 2
        return UUID(
            int=millis << _AFTER_TIME | _VERSION | (rest << 12) // 1000 << 64 | _VARIANT | low
        )

    return make


def first_id(moment: datetime) -> UUID:
    """Return a bound below every id that is made in this millisecond or later."""
    return UUID(int=((moment - EPOCH) // _MILLISECOND) << _AFTER_TIME)


def time_of(event_id: UUID) -> datetime:
    """Return the time that an id of version 7 begins with."""
    return EPOCH + (event_id.int >> _AFTER_TIME) * _MILLISECOND


def made_at(event_id: UUID) -> datetime | None:
    """Return the time inside a version 7 id, or None for another version."""
    return time_of(event_id) if event_id.version == VERSION else None
