"""Partitions of the outbox: ranges of days, because a UUIDv7 begins with its time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, text

from pillarbox.event.ids import EPOCH, first_id, time_of
from pillarbox.migrations.frozen import SqlTemplate, qualifier

DAY: Final = timedelta(days=1)
WARN_BELOW: Final = timedelta(days=7)
_BOUND: Final = re.compile(r"FROM \('([0-9a-f-]{36})'\) TO \('([0-9a-f-]{36})'\)")


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A part of the outbox: the events whose ids were made in [start, end)."""

    start: datetime
    end: datetime

    @property
    def name(self) -> str:
        """The table's name, after its first day."""
        return f"outbox_p{self.start:%Y%m%d}"

    @property
    def lower(self) -> UUID:
        """The smallest id that belongs here."""
        return first_id(self.start)

    @property
    def upper(self) -> UUID:
        """The smallest id that belongs to the next partition."""
        return first_id(self.end)


def missing(
    existing: Sequence[Partition], now: datetime, *, ahead: timedelta, days: int = 1
) -> Iterator[Partition]:
    """Say which partitions are needed to cover yesterday until `ahead` without a gap.

    Yesterday belongs to it because ids are made by the clocks of the applications.
    """
    cursor = _midnight(now - DAY)
    while cursor < now + ahead:
        holder = next((p for p in existing if p.start <= cursor < p.end), None)
        if holder is not None:
            cursor = holder.end
            continue
        later = [p.start for p in existing if p.start > cursor]
        end = min([_next_boundary(cursor, days), *later])
        yield Partition(cursor, end)
        cursor = end


def covered_until(existing: Sequence[Partition], now: datetime) -> datetime:
    """Return the time up to which every id made from now on finds a partition."""
    cursor = now
    for partition in sorted(existing):
        if partition.start <= cursor < partition.end:
            cursor = partition.end
    return cursor


def running_out(existing: Sequence[Partition], now: datetime) -> str | None:
    """Say in words that the partitions end soon, or nothing."""
    left = covered_until(existing, now) - now
    if left >= WARN_BELOW:
        return None
    if not left:
        return "no partition takes the events of today"
    return f"partitions run out in {left / DAY:.1f} days"


def partition_sql(partition: Partition, schema: str | None = None) -> str:
    """Return the statement that makes a partition unless it is there."""
    template = (files("pillarbox.schema") / "sql" / "partition.sql").read_text("utf-8")
    return SqlTemplate(template).substitute(
        schema=qualifier(schema),
        name=partition.name,
        lower=partition.lower,
        upper=partition.upper,
    )


def existing_partitions(connection: Connection, schema: str | None = None) -> list[Partition]:
    """Read the partitions that the outbox has."""
    query = text(
        "SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:table)"
    )
    table = {"table": f"{qualifier(schema)}outbox"}
    bounds = [_BOUND.search(bound) for bound in connection.scalars(query, table)]
    return sorted(
        Partition(time_of(UUID(bound[1])), time_of(UUID(bound[2]))) for bound in bounds if bound
    )


def ensure(
    connection: Connection,
    now: datetime,
    *,
    ahead: timedelta,
    days: int = 1,
    schema: str | None = None,
) -> list[Partition]:
    """Make the partitions that are missing, and return them.

    Writers go on meanwhile: each is attached, which takes SHARE UPDATE EXCLUSIVE on the outbox.
    """
    existing = existing_partitions(connection, schema)
    made = list(missing(existing, now, ahead=ahead, days=days))
    for partition in made:
        connection.exec_driver_sql(partition_sql(partition, schema))
    return made


def _midnight(at: datetime) -> datetime:
    return EPOCH + (at - EPOCH) // DAY * DAY


def _next_boundary(at: datetime, days: int) -> datetime:
    """Return the next boundary of a grid that is the same on every machine."""
    width = DAY * days
    return EPOCH + ((at - EPOCH) // width + 1) * width
