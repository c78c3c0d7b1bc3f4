"""The tables of the outbox in a schema, and the conditions that their indexes know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    FromClause,
    Table,
    Text,
    and_,
    column,
    func,
    literal,
    literal_column,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from pillarbox.projector.store import OutboxEvent
from pillarbox.schema import tables as shared
from pillarbox.schema.tables import table_in
from pillarbox.schema.types import EventIdType


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a schema whose rows stand in so many shards."""

    schema: str | None
    shards: int

    @property
    def outbox(self) -> Table:
        """The events."""
        return table_in(shared.outbox, self.schema)

    @property
    def blocked(self) -> Table:
        """The blocked keys."""
        return table_in(shared.outbox_blocked_key, self.schema)

    @property
    def lease(self) -> Table:
        """The leases."""
        return table_in(shared.outbox_lease, self.schema)

    @property
    def member(self) -> Table:
        """The members."""
        return table_in(shared.outbox_member, self.schema)

    @property
    def claim(self) -> Table:
        """The claims."""
        return table_in(shared.outbox_claim, self.schema)

    @property
    def claim_end(self) -> Table:
        """The ends of claims."""
        return table_in(shared.outbox_claim_end, self.schema)

    @property
    def readmodel(self) -> Table:
        """The read models."""
        return table_in(shared.readmodel, self.schema)

    @property
    def control(self) -> Table:
        """What operators asked for."""
        return table_in(shared.outbox_control, self.schema)

    def shard(self, of: FromClause) -> ColumnElement[int]:
        """Return a row's shard, written as the claim index has it."""
        return of.c.shard_hash.bitwise_and(literal_column(str(self.shards - 1)))


def claimable(outbox: FromClause) -> ColumnElement[bool]:
    """Hold for rows that nothing keeps from being sent, written as the partial index has it."""
    return and_(outbox.c.status == literal_column("'NEW'"), outbox.c.set_aside.is_(None))


def unsettled(outbox: FromClause) -> ColumnElement[bool]:
    """Hold for rows that may be in hand; with claim="row" they are marked."""
    return outbox.c.status.in_(("NEW", "PUBLISHING"))


def listed(
    connection: Connection, rows: Sequence[Mapping[str, Any]], **columns: TypeEngine[Any]
) -> FromClause:
    """Make a table of values that travel as one parameter, however many they are."""
    values = literal(rows, JSON())
    if connection.dialect.name == "postgresql":
        names = [column(name, kind) for name, kind in columns.items()]
        return func.json_to_recordset(values).table_valued(*names).render_derived(with_types=True)
    each = func.json_each(values).table_valued("value")
    return select(
        *(
            type_coerce(func.json_extract(each.c.value, f"$.{name}"), kind).label(name)
            for name, kind in columns.items()
        )
    ).subquery()


def is_among(
    connection: Connection, outbox: FromClause, events: Sequence[OutboxEvent]
) -> ColumnElement[bool]:
    """Hold for the rows of these events."""
    rows = [{"tenant_id": event.lane[0], "id": event.event_id} for event in events]
    wanted = listed(connection, rows, tenant_id=Text(), id=EventIdType())
    return tuple_(outbox.c.tenant_id, outbox.c.id).in_(select(wanted.c.tenant_id, wanted.c.id))


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Begin an insert that may say what to do about a row that is there."""
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return made(table)
