"""The newest event of each aggregate that took effect, for consumers that refuse older ones."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.schema.tables import inbox_applied, table_in


class Author(NamedTuple):
    """Whose versions they are: two aggregates may share a key, and two services a type."""

    source: str
    aggregate_type: str
    aggregate_id: str


class Stand(NamedTuple):
    """How far an aggregate is: its version, and the event's number within it."""

    version: int
    number: int


def author_of(envelope: MessageEnvelope) -> Author | None:
    """Return the aggregate of an event; its key, if it names none and has one."""
    aggregate_id = envelope.aggregate_id or envelope.key
    if aggregate_id is None or envelope.aggregate_version is None:
        return None
    return Author(envelope.source or "", envelope.aggregate_type or "", aggregate_id)


def stand_of(envelope: MessageEnvelope) -> Stand | None:
    """Return where an event stands; None when it does not say."""
    if envelope.aggregate_version is None:
        return None
    return Stand(envelope.aggregate_version, envelope.event_number or 0)


class Stands:
    """Read and write the stands of one consumer, inside the transactions of others."""

    def __init__(self, consumer: str, schema: str | None = None) -> None:
        self._consumer = consumer
        self._table = table_in(inbox_applied, schema)

    async def read(
        self, session: AsyncSession, tenant_id: str, authors: Collection[Author]
    ) -> dict[Author, Stand]:
        """Return the stands of aggregates and lock them, in one order, until the commit."""
        columns = self._table.c
        author = (columns.source, columns.aggregate_type, columns.aggregate_id)
        rows = await session.execute(
            select(*author, columns.version, columns.number)
            .where(columns.tenant_id == tenant_id, columns.consumer == self._consumer)
            .where(tuple_(*author).in_(sorted(authors)))
            .order_by(*author)
            .with_for_update()
        )
        return {
            Author(row.source, row.aggregate_type, row.aggregate_id): Stand(row.version, row.number)
            for row in rows
        }

    async def write(
        self, session: AsyncSession, tenant_id: str, stands: Mapping[Author, Stand]
    ) -> None:
        """Keep the stands of aggregates; a higher one that another transaction wrote stays."""
        if not stands:
            return
        dialect = session.sync_session.get_bind().dialect.name
        insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(self._table)
        place = {"tenant_id": tenant_id, "consumer": self._consumer}
        rows = [
            {**place, **author._asdict(), **stand._asdict()}
            for author, stand in sorted(stands.items())
        ]
        columns, new = self._table.c, insert.excluded
        await session.execute(
            insert.values(rows).on_conflict_do_update(
                index_elements=[*self._table.primary_key],
                set_={"version": new.version, "number": new.number},
                where=tuple_(columns.version, columns.number) < tuple_(new.version, new.number),
            )
        )
