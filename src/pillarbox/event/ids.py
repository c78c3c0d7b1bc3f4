"""Event ids: UUIDs of version 7, made once in the producing transaction and never changed."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pillarbox.clock import SYSTEM_CLOCK, Clock

IdMaker = Callable[[], UUID]
RandomBytes = Callable[[int], bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_VERSION = 7 << 76
_VARIANT = 2 << 62


def id_maker(clock: Clock = SYSTEM_CLOCK, random_bytes: RandomBytes = os.urandom) -> IdMaker:
    """Make a maker of ids that rise with the clock, down to a quarter of a microsecond."""

    def make() -> UUID:
        micros = (clock.now() - _EPOCH) // timedelta(microseconds=1)
        millis, rest = divmod(micros, 1000)
        # Twelve bits below the millisecond keep the ids of one process nearly sorted.
        low = int.from_bytes(random_bytes(8), "big") >> 2
        return UUID(int=millis << 80 | _VERSION | (rest << 12) // 1000 << 64 | _VARIANT | low)

    return make


def first_id_of(moment: datetime) -> UUID:
    """Return the lowest id that can be made in this millisecond, as a range's bound."""
    return UUID(int=((moment - _EPOCH) // _MILLISECOND) << 80 | _VERSION | _VARIANT)


def made_at(event_id: UUID) -> datetime | None:
    """Return the time inside a version 7 id, or None for another version."""
    version_seven = 7
    return (
        _EPOCH + (event_id.int >> 80) * _MILLISECOND if event_id.version == version_seven else None
    )
