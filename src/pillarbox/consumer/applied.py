"""The newest event of each key that took effect, for consumers that refuse older ones."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.event.envelope import MessageEnvelope
from pillarbox.schema.tables import inbox_applied, table_in


class Stand(NamedTuple):
    """How far a key is: the aggregate's version, and the event's number within it."""

    version: int
    number: int


def stand_of(envelope: MessageEnvelope) -> Stand | None:
    """Return where an event stands; None when it has no key or does not say."""
    if envelope.key is None or envelope.aggregate_version is None:
        return None
    return Stand(envelope.aggregate_version, envelope.event_number or 0)


def is_stale(envelope: MessageEnvelope, applied: Mapping[str, Stand]) -> bool:
    """Tell whether an event is not above what was applied of its key."""
    stand, key = stand_of(envelope), envelope.key
    if stand is None or key is None or key not in applied:
        return False
    return stand <= applied[key]


class Stands:
    """Read and write the stands of one consumer, inside the transactions of others."""

    def __init__(self, consumer: str, schema: str | None = None) -> None:
        self._consumer = consumer
        self._table = table_in(inbox_applied, schema)

    async def read(
        self, session: AsyncSession, tenant_id: str, keys: Collection[str]
    ) -> dict[str, Stand]:
        """Return the stands of keys and lock them, in one order, until the commit."""
        columns = self._table.c
        rows = await session.execute(
            select(columns.key, columns.version, columns.number)
            .where(columns.tenant_id == tenant_id, columns.consumer == self._consumer)
            .where(columns.key.in_(keys))
            .order_by(columns.key)
            .with_for_update()
        )
        return {row.key: Stand(row.version, row.number) for row in rows}

    async def write(
        self, session: AsyncSession, tenant_id: str, stands: Mapping[str, Stand]
    ) -> None:
        """Keep the stands of keys."""
        if not stands:
            return
        dialect = session.sync_session.get_bind().dialect.name
        insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(self._table)
        place = {"tenant_id": tenant_id, "consumer": self._consumer}
        rows = [
            {**place, "key": key, "version": stand.version, "number": stand.number}
            for key, stand in sorted(stands.items())
        ]
        columns = self._table.c
        await session.execute(
            insert.values(rows).on_conflict_do_update(
                index_elements=[columns.tenant_id, columns.consumer, columns.key],
                set_={"version": insert.excluded.version, "number": insert.excluded.number},
            )
        )
