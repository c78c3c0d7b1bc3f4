"""Let a blocked key go on: bring back the next chunk of what was set aside behind it.

The projector does the same with a statement of its own; decision 0008 says what both mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, Select, Table, and_, delete, or_, select, update

from pillarbox.schema.tables import outbox, outbox_blocked_key, table_in
from pillarbox.schema.types import TransactionId

# Rows of a key that come back at a time, and of all keys together if these are not more.
CHUNK: Final = 1000
_AT_ONCE: Final = 10_000
SKIPPED: Final = "skipped"
EXPIRED: Final = "expired"
# DEAD events of these classes are decided about: they keep no key waiting.
DECIDED: Final = (SKIPPED, EXPIRED)


@dataclass(frozen=True, slots=True)
class Released:
    """What a release did: keys that are free, keys that go on in chunks, events brought back."""

    freed: int = 0
    moved: int = 0
    events: int = 0

    def __add__(self, other: "Released") -> "Released":
        return Released(
            self.freed + other.freed, self.moved + other.moved, self.events + other.events
        )


@dataclass(frozen=True, slots=True)
class _Tables:
    outbox: Table
    blocked: Table

    @classmethod
    def of(cls, schema: str | None) -> "_Tables":
        return cls(table_in(outbox, schema), table_in(outbox_blocked_key, schema))


def chunk_for(keys: int) -> int:
    """Return how many rows of each key come back when so many keys are released together."""
    return max(1, min(CHUNK, _AT_ONCE // max(1, keys)))


def release_keys(
    connection: Connection,
    tenant_id: str,
    blockers: Mapping[UUID, str],
    *,
    schema: str | None = None,
    chunk: int = CHUNK,
) -> Released:
    """Release the keys of a tenant that these events (id to key) block, in the open transaction.

    A key that another event blocks by now is left alone. Each blocked row is locked first, as
    whoever sets events aside locks it, so that none is set aside behind a key that is free. If a
    later event of the key is FAILED or DEAD and undecided, the block moves on to it; an earlier one
    was passed already.
    """
    tables = _Tables.of(schema)
    locked = _lock(connection, tables, tenant_id, blockers)
    if not locked:
        return Released()
    later = _later_troubles(connection, tables, tenant_id, locked)
    freed, moved, events = [], 0, 0
    for row in locked:
        trouble = later.get(row.key)
        if trouble is not None:
            events += _move_to_trouble(connection, tables, (tenant_id, row.key), trouble, chunk)
            moved += 1
        elif brought := _next_chunk(connection, tables, (tenant_id, row.key), chunk):
            _move(connection, tables, (tenant_id, row.key), brought[-1])
            events += len(brought)
            moved += 1
        else:
            freed.append(row.key)
    _free(connection, tables, tenant_id, freed)
    return Released(len(freed), moved, events)


def undecided(table: Table) -> Any:
    """Hold for the events among FAILED and DEAD ones that nobody has decided about."""
    return or_(table.c.error_class.is_(None), table.c.error_class.not_in(DECIDED))


def troubled(table: Table) -> Any:
    """Hold for FAILED and DEAD events, as the partial indexes say it."""
    return table.c.status.in_(("FAILED", "DEAD"))


def _lock(
    connection: Connection, tables: _Tables, tenant_id: str, blockers: Mapping[UUID, str]
) -> Sequence[Row[Any]]:
    """Lock the blocked rows in one order, so that two releases cannot wait for each other."""
    columns = tables.blocked.c
    query: Select[Any] = (
        select(columns.key, columns.event_id, columns.seq)
        .where(columns.tenant_id == tenant_id, columns.key.in_(set(blockers.values())))
        .where(columns.event_id.in_(list(blockers)))
        .order_by(columns.key)
        .with_for_update()
    )
    return [row for row in connection.execute(query) if blockers[row.event_id] == row.key]


def _later_troubles(
    connection: Connection, tables: _Tables, tenant_id: str, locked: Sequence[Row[Any]]
) -> dict[str, Row[Any]]:
    """Return the first undecided event above the block of each key that has one."""
    columns = tables.outbox.c
    passed = {row.key: row.seq for row in locked}
    query: Select[Any] = (
        select(columns.key, columns.id, columns.seq)
        .where(columns.tenant_id == tenant_id, troubled(tables.outbox), undecided(tables.outbox))
        .where(columns.key.in_(list(passed)))
        .order_by(columns.seq.desc())
    )
    return {row.key: row for row in connection.execute(query) if row.seq > passed[row.key]}


def _next_chunk(
    connection: Connection,
    tables: _Tables,
    place: tuple[str, str],
    chunk: int,
    below: int | None = None,
) -> Sequence[Row[Any]]:
    """Bring back the oldest events behind a key, made claimable by this transaction."""
    columns = tables.outbox.c
    behind = and_(
        columns.tenant_id == place[0], columns.key == place[1], columns.set_aside == "key"
    )
    query: Select[Any] = (
        select(columns.id, columns.seq).where(behind).order_by(columns.seq).limit(chunk)
    )
    if below is not None:
        query = query.where(columns.seq < below)
    found = connection.execute(query).all()
    if found:
        connection.execute(
            update(tables.outbox)
            .where(behind, columns.seq <= found[-1].seq)
            .values(set_aside=None, txid=TransactionId())
        )
    return found


def _move_to_trouble(
    connection: Connection,
    tables: _Tables,
    place: tuple[str, str],
    trouble: Row[Any],
    chunk: int,
) -> int:
    """Block the key at a later event that needs a decision too; what lies before it may pass."""
    events = 0
    while brought := _next_chunk(connection, tables, place, chunk, below=trouble.seq):
        events += len(brought)
    _move(connection, tables, place, trouble)
    return events


def _move(connection: Connection, tables: _Tables, place: tuple[str, str], last: Row[Any]) -> None:
    columns = tables.blocked.c
    connection.execute(
        update(tables.blocked)
        .where(columns.tenant_id == place[0], columns.key == place[1])
        .values(event_id=last.id, seq=last.seq, topic=None)
    )


def _free(connection: Connection, tables: _Tables, tenant_id: str, keys: Sequence[str]) -> None:
    if keys:
        columns = tables.blocked.c
        connection.execute(
            delete(tables.blocked).where(columns.tenant_id == tenant_id, columns.key.in_(keys))
        )
