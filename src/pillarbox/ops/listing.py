"""Queries that list events and blocked keys, each by an index."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    literal,
    or_,
    select,
    text,
    tuple_,
    union_all,
)

from pillarbox.errors import InvalidRequest
from pillarbox.event.ids import first_id
from pillarbox.ops.claims import claim_on, open_claims
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.transactions import Transactions
from pillarbox.ops.views import BlockedKey, OutboxEvent
from pillarbox.schema.tables import CLAIMABLE, SET_ASIDE, outbox

STATES: Final = ("NEW", "PUBLISHING", "SENT", "FAILED", "DEAD")
SEARCHED: Final = 10_000  # how many waiting events of each kind a listing looks at
_EARLIER: Final = timedelta(days=1)
_COLUMNS: Final = tuple(field.name for field in fields(OutboxEvent))


@dataclass(frozen=True, slots=True)
class Listing:
    """What is to be listed: events of one state, the newest first, below a number."""

    matching: EventFilter
    status: str
    limit: int
    below_seq: int | None = None

    def read(self, connection: Connection, transactions: Transactions) -> Sequence[OutboxEvent]:
        """Return the events; NEW ones of open claims are shown as PUBLISHING."""
        table = transactions.table(outbox)
        waiting = self.status in ("NEW", "PUBLISHING")
        claims = open_claims(connection, transactions.schema) if waiting else ()
        query = self._query(table, frozenset[int]().union(*(claim.seqs for claim in claims)))
        return [
            as_event(row, in_flight=claim_on(claims, row.seq) is not None)
            for row in connection.execute(query)
        ]

    def _query(self, table: Table, claimed: Collection[int]) -> Select[Any]:
        shown = [table.c[name] for name in _COLUMNS]
        if self.status == "NEW":
            rows = union_all(*_waiting(table, shown, self.matching)).subquery("rows")
            found = select(rows).where(rows.c.seq.not_in(claimed))
        elif self.status == "PUBLISHING":
            rows = union_all(*_being_sent(table, shown)).subquery("rows")
            found = select(rows).where(or_(rows.c.status != "NEW", rows.c.seq.in_(claimed)))
        else:
            rows = select(*shown).where(*_in_state(table, self.matching, self.status)).subquery()
            found = select(rows)
        if self.below_seq is not None:
            found = found.where(rows.c.seq < self.below_seq)
        found = found.where(*self.matching.conditions(rows))
        return found.order_by(rows.c.seq.desc()).limit(self.limit)


def _waiting(table: Table, shown: Sequence[Any], matching: EventFilter) -> list[Select[Any]]:
    """Look at the newest of what waits, a bounded number; of one key, at all that was set aside."""
    columns = table.c
    behind = select(*shown).where(columns.status == "NEW", text(SET_ASIDE))
    for name in ("tenant_id", "key"):
        if getattr(matching, name) is not None:
            behind = behind.where(columns[name] == getattr(matching, name))
    order = columns.tenant_id.desc(), columns.key.desc(), columns.seq.desc()
    claimable = select(*shown).where(text(CLAIMABLE)).order_by(columns.txid.desc())
    return _bounded(behind.order_by(*order), claimable)


def _being_sent(table: Table, shown: Sequence[Any]) -> list[Select[Any]]:
    """Look at the oldest of what can be claimed, and at what a claim has marked."""
    columns = table.c
    claimable = select(*shown).where(text(CLAIMABLE)).order_by(columns.txid)
    marked = select(*shown).where(columns.status == "PUBLISHING").order_by(columns.tenant_id)
    return _bounded(claimable, marked)


def _bounded(*parts: Select[Any]) -> list[Select[Any]]:
    return [select(part.limit(SEARCHED).subquery()) for part in parts]


def _in_state(table: Table, matching: EventFilter, status: str) -> list[ColumnElement[bool]]:
    if status not in STATES:
        raise InvalidRequest("status", f"is {status!r}", f"use one of {', '.join(STATES)}")
    if status != "SENT":
        return [table.c.status == status]
    if matching.tenant_id is None or matching.after is None:
        raise InvalidRequest(
            "filter",
            "would read every SENT event",
            "name a tenant and `after`, so that the primary key finds them",
        )
    # An id begins with the time of raising, which lies before the commit: allow for a day.
    return [
        table.c.status == "SENT",
        table.c.tenant_id == matching.tenant_id,
        table.c.id >= first_id(matching.after - _EARLIER),
    ]


def as_event(row: Row[Any], *, in_flight: bool) -> OutboxEvent:
    """Return a row as a list shows it."""
    values = {name: getattr(row, name) for name in _COLUMNS}
    if in_flight and row.status == "NEW" and row.set_aside is None:
        values["status"] = "PUBLISHING"
    return OutboxEvent(**values)


def one(
    connection: Connection, transactions: Transactions, tenant_id: str, event_id: UUID
) -> Row[Any] | None:
    """Return one event with its headers, never its payload."""
    table = transactions.table(outbox)
    found: Select[Any] = select(
        *(table.c[name] for name in _COLUMNS), table.c.event_metadata
    ).where(table.c.tenant_id == tenant_id, table.c.id == event_id)
    return connection.execute(found).one_or_none()


def block_of(connection: Connection, blocked: Table, event: OutboxEvent) -> BlockedKey | None:
    """Return what blocks an event's key."""
    found = select(blocked).where(
        blocked.c.tenant_id == event.tenant_id, blocked.c.key == event.key
    )
    row = connection.execute(found).mappings().one_or_none()
    return None if row is None else BlockedKey(**row)


def blocked_query(
    blocked: Table, tenant_id: str | None, after: tuple[str, str], limit: int
) -> Select[Any]:
    """Return the query for blocked keys, in the order of their primary key."""
    place = tuple_(blocked.c.tenant_id, blocked.c.key)
    found = select(blocked).where(place > tuple_(*map(literal, after)))
    if tenant_id is not None:
        found = found.where(blocked.c.tenant_id == tenant_id)
    return found.order_by(blocked.c.tenant_id, blocked.c.key).limit(limit)
