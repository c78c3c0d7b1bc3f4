"""Keys whose event could not be applied: they wait, and come again."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.readmodel.checkpoint import Generation
from pillarbox.readmodel.log import Entry
from pillarbox.schema.tables import readmodel_held, table_in
from pillarbox.words import storable, storable_class, words_of

Line = tuple[str, str]


class HeldKey(NamedTuple):
    """A key that waits from this number on."""

    tenant_id: str
    key: str
    seq: int
    attempts: int
    due_at: datetime
    event_id: UUID

    @property
    def line(self) -> Line:
        """What keeps its order: the tenant's key."""
        return self.tenant_id, self.key


class HeldKeys:
    """Read and write held keys of a model inside the runner's transaction."""

    def __init__(self, schema: str | None = None) -> None:
        self._table = table_in(readmodel_held, schema)

    async def of(self, session: AsyncSession, at: Generation) -> dict[Line, HeldKey]:
        """Return the keys that wait."""
        found = [HeldKey(*row) for row in await session.execute(self._select(at))]
        return {held.line: held for held in found}

    async def find(self, session: AsyncSession, at: Generation, line: Line) -> HeldKey | None:
        """Return a key, if it waits."""
        columns = self._table.c
        own = self._select(at).where(columns.tenant_id == line[0], columns.key == line[1])
        row = (await session.execute(own)).one_or_none()
        return None if row is None else HeldKey(*row)

    def _select(self, at: Generation) -> Select[Any]:
        columns = self._table.c
        return select(*(columns[name] for name in HeldKey._fields)).where(
            columns.name == at.name, columns.generation == at.generation
        )

    async def hold(
        self,
        session: AsyncSession,
        at: Generation,
        entry: Entry,
        error: BaseException,
        *,
        attempts: int,
        due_at: datetime,
    ) -> None:
        """Have a key wait from an event on that failed."""
        dialect = session.sync_session.get_bind().dialect.name
        build: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
        place = {
            "tenant_id": entry.tenant_id,
            "name": at.name,
            "generation": at.generation,
            "key": entry.key,
        }
        found = {
            "seq": entry.seq,
            "event_id": UUID(entry.event_id),
            "attempts": attempts,
            "due_at": due_at,
            "error_class": storable_class(type(error).__name__),
            "error_message": storable(words_of(error)),
        }
        await session.execute(
            build(self._table)
            .values(**place, **found)
            .on_conflict_do_update(index_elements=list(place), set_=found)
        )

    async def release(self, session: AsyncSession, at: Generation, line: Line) -> None:
        """Let a key go that has caught up."""
        columns = self._table.c
        await session.execute(
            delete(self._table).where(
                columns.tenant_id == line[0],
                columns.name == at.name,
                columns.generation == at.generation,
                columns.key == line[1],
            )
        )


def delay(attempts: int, first: float, longest: float) -> timedelta:
    """Return how long a key waits after so many attempts."""
    return timedelta(seconds=min(first * 2.0 ** min(attempts - 1, 30), longest))
