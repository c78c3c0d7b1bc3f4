"""How far a subscribed model is behind: what its members told, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, RowMapping, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.schema.tables import readmodel_member, table_in
from pillarbox.schema.types import DatabaseTime

Place = tuple[str, int]
"""A model and its generation."""

# Who waits is late, whatever the clocks of producer and database say.
_LEAST: Final = 0.001
# What a member told outlives it for so long: until then somebody else has told something newer.
_FORGOTTEN_AFTER: Final = timedelta(minutes=5)


class Lag(NamedTuple):
    """How many messages were not applied, if anybody knows, and how old the oldest can be."""

    events: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a member told: good for a while, since what comes after it is unknown.

    `oldest_at` is the time of the oldest message in its hands. Everything older than `fresh_at` was
    applied, as far as it knew. `at_end` is whether its broker had nothing more, if that was known.
    """

    told_at: datetime
    good_until: datetime
    oldest_at: datetime | None = None
    fresh_at: datetime | None = None
    waiting: int | None = None
    in_hand: int = 0
    at_end: bool | None = None

    @classmethod
    def of(cls, row: RowMapping) -> "Told":
        """Read a row."""
        at_end = row["at_end"]
        return cls(
            told_at=row["told_at"],
            good_until=row["good_until"],
            oldest_at=row["oldest_at"],
            fresh_at=row["fresh_at"],
            waiting=row["waiting"],
            in_hand=row["in_hand"],
            at_end=None if at_end is None else bool(at_end),
        )


def lag_of(told: Sequence[Told], now: datetime, began: datetime) -> Lag:
    """Say how far a model is behind that began at a time.

    What is in hand has a time. What waits at the broker has none that we know, but is newer than the
    moment up to which all was applied. What came after the last word is not known at all: since then
    the lag grows, whether anything waits or not, and is never too small.
    """
    live = [found for found in told if found.good_until > now]
    known = [found.waiting for found in live if found.waiting is not None]
    events = max(known) + sum(found.in_hand for found in live) if known else None
    oldest = [found.oldest_at for found in live or told if found.oldest_at is not None]
    if oldest:
        return Lag(events, age(min(oldest), now))
    words = [found for found in live if found.at_end is not None]
    if words and max(words, key=lambda found: found.told_at).at_end:
        events = 0
    fresh = [found.fresh_at for found in told if found.fresh_at is not None]
    return Lag(events, age(max(fresh, default=began), now))


def age(since: datetime, now: datetime) -> float:
    """Return how long something has waited; never nothing, even if a clock is ahead."""
    return max((now - since).total_seconds(), _LEAST)


class Members:
    """Read and write what members tell, inside the transactions of others."""

    def __init__(self, schema: str | None = None) -> None:
        self._table = table_in(readmodel_member, schema)

    async def tell(self, session: AsyncSession, place: Place, member: str, told: Told) -> None:
        """Write what a member tells, instead of what it told before; forget those long gone."""
        dialect = session.sync_session.get_bind().dialect.name
        build: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
        key = {"name": place[0], "generation": place[1], "member": member}
        values = {
            "told_at": told.told_at,
            "good_until": told.good_until,
            "oldest_at": told.oldest_at,
            "fresh_at": told.fresh_at,
            "waiting": told.waiting,
            "in_hand": told.in_hand,
            "at_end": None if told.at_end is None else int(told.at_end),
        }
        statement = build(self._table).values(**key, **values)
        await session.execute(
            statement.on_conflict_do_update(index_elements=list(key), set_=values)
        )
        gone = self._table.c.good_until < DatabaseTime(after=-_FORGOTTEN_AFTER)
        await session.execute(delete(self._table).where(*self._of(place), gone))

    def select(self, place: Place) -> Any:
        """Return the query for what the members of a generation told."""
        return select(self._table).where(*self._of(place))

    def _of(self, place: Place) -> tuple[ColumnElement[bool], ...]:
        return (self._table.c.name == place[0], self._table.c.generation == place[1])
