"""The tables of sagas, inside the transactions of others. The database's clock sets every time.

Whoever changes a saga has its row locked: a reply waits for the lock, a timer passes a locked row
by. So each sees what the other has committed, and decides anew.
"""

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from sqlalchemy import ColumnElement, CursorResult, Row, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.identity import stored_text
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.inbox.identity import stored_id
from pillarbox.saga.machine import ENDED, Part, Place, Verdict
from pillarbox.saga.rows import Instance, StepRow, instance_of, start_values
from pillarbox.schema.tables import saga, saga_step, saga_stray, table_in
from pillarbox.schema.types import DatabaseTime
from pillarbox.words import storable, storable_class, words_of

_TEXT_LENGTH = 255


class RevisionLost(Exception):
    """Another transaction changed a saga that this one held; nothing of this one may commit."""


class Store:
    """Read and write the sagas of one name."""

    def __init__(self, name: str, schema: str | None = None) -> None:
        self.name = name
        self._saga: Table = table_in(saga, schema)
        self._step: Table = table_in(saga_step, schema)
        self._stray: Table = table_in(saga_stray, schema)

    async def add(self, session: AsyncSession, made: Instance) -> bool:
        """Insert a saga; False when its start event has started one before."""
        values = {
            "tenant_id": made.tenant_id,
            "saga_id": made.saga_id,
            "name": made.name,
            "version": made.version,
            "state": made.progress.state,
            "start_id": stored_id(made.start.event_id),
            "start": start_values(made.start),
            "steps": made.step_names,
            "started_at": DatabaseTime(),
        }
        dialect = session.sync_session.get_bind().dialect.name
        new: Any = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(self._saga)
        columns = self._saga.c
        statement = (
            new.values(**values)
            .on_conflict_do_nothing(
                index_elements=[columns.tenant_id, columns.name, columns.start_id]
            )
            .returning(columns.revision)
        )
        added = await session.scalar(statement)
        made.revision = added or 0
        return added is not None

    async def find(self, session: AsyncSession, tenant_id: str, saga_id: UUID) -> Instance | None:
        """Lock and read a saga; a transaction that has it is waited for."""
        query = select(self._saga).where(*self._this(self._saga, tenant_id, saga_id))
        query = query.where(self._saga.c.name == self.name).with_for_update()
        row = (await session.execute(query)).first()
        return None if row is None else await self.whole(session, row)

    async def open_version(
        self, session: AsyncSession, tenant_id: str, saga_id: UUID
    ) -> int | None:
        """Return the version of a saga of this name that has not ended; it is not locked."""
        columns = self._saga.c
        query = select(columns.version).where(*self._this(self._saga, tenant_id, saga_id))
        query = query.where(columns.name == self.name, columns.finished_at.is_(None))
        found: int | None = await session.scalar(query)
        return found

    async def is_other(self, session: AsyncSession, tenant_id: str, saga_id: UUID) -> bool:
        """Tell whether an id is that of a saga of another name."""
        query = select(self._saga.c.name).where(*self._this(self._saga, tenant_id, saga_id))
        return await session.scalar(query) is not None

    async def whole(self, session: AsyncSession, row: Row[Any]) -> Instance:
        """Read the steps of a saga whose row is locked."""
        query = select(self._step).where(*self._this(self._step, row.tenant_id, row.saga_id))
        return instance_of(row, await session.execute(query))

    async def next_tenant(self, session: AsyncSession) -> str | None:
        """Return the tenant of the saga that is due first and that nobody has."""
        query = self._due().limit(1).with_only_columns(self._saga.c.tenant_id)
        found: str | None = await session.scalar(query)
        return found

    async def due(
        self, session: AsyncSession, tenant_id: str, limit: int, *, saga_id: UUID | None = None
    ) -> list[Row[Any]]:
        """Lock sagas of a tenant, or one, that are due and that nobody has, the first due first."""
        query = self._due().where(self._saga.c.tenant_id == tenant_id).limit(limit)
        if saga_id is not None:
            query = query.where(self._saga.c.saga_id == saga_id)
        return list(await session.execute(query))

    async def save(self, session: AsyncSession, held: Instance, wait: timedelta | None) -> None:
        """Write how a saga stands, and when its time is up."""
        progress, place, cause = held.progress, held.progress.waits_for, held.progress.cause
        ended = progress.state in ENDED
        values = {
            "state": progress.state,
            "step": None if place is None else held.step_names[place.step],
            "part": None if place is None else place.part,
            "tries": progress.tries,
            "failures": 0,
            "cause_step": None if cause is None else held.step_names[cause.step],
            "cause": None if cause is None else cause.outcome,
            "wish": None,
            "due_at": None if wait is None else DatabaseTime(wait),
            "finished_at": DatabaseTime() if ended else None,
            "error_class": None,
            "error_message": None,
        }
        for row in held.steps.values():
            await self._save_step(session, held, row)
        await self._change(session, held, values)

    async def put_off(
        self,
        session: AsyncSession,
        row: Row[Any],
        error: Exception,
        wait: timedelta | None,
        **values: Any,
    ) -> None:
        """Write what went wrong with a locked saga, and when to look at it again."""
        values |= {
            "due_at": None if wait is None else DatabaseTime(wait),
            "error_class": storable_class(type(error).__name__),
            "error_message": storable(words_of(error)),
        }
        await self._change(session, row, values)

    async def stray(
        self,
        session: AsyncSession,
        held: Instance,
        reply: MessageEnvelope,
        verdict: Verdict,
        place: Place | None,
    ) -> None:
        """Keep a reply that did nothing."""
        await session.execute(
            insert(self._stray).values(
                tenant_id=held.tenant_id,
                saga_id=held.saga_id,
                message_id=stored_id(reply.event_id),
                verdict=verdict,
                step=None if place is None else held.step_names[place.step],
                part=None if place is None else place.part,
                event_type=stored_text(reply.event_type, _TEXT_LENGTH),
                received_at=DatabaseTime(),
            )
        )

    async def forget(
        self, session: AsyncSession, tenant_id: str | None, age: timedelta, most: int
    ) -> int:
        """Delete sagas that ended long ago, of a tenant or of all, with their steps; count them."""
        columns = self._saga.c
        query = (
            select(columns.tenant_id, columns.saga_id)
            .where(columns.name == self.name, columns.finished_at < DatabaseTime(-age))
            .order_by(columns.finished_at)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        if tenant_id is not None:
            query = query.where(columns.tenant_id == tenant_id)
        found: dict[str, list[UUID]] = {}
        for row in await session.execute(query):
            found.setdefault(row.tenant_id, []).append(row.saga_id)
        for tenant, ids in found.items():
            for table in (self._stray, self._step, self._saga):
                these = (table.c.tenant_id == tenant, table.c.saga_id.in_(ids))
                await session.execute(delete(table).where(*these))
        return sum(map(len, found.values()))

    def _due(self) -> Any:
        columns = self._saga.c
        return (
            select(self._saga)
            .where(columns.name == self.name, columns.due_at <= DatabaseTime())
            .order_by(columns.due_at)
            .with_for_update(skip_locked=True)
        )

    async def _change(
        self, session: AsyncSession, held: Instance | Row[Any], values: dict[str, Any]
    ) -> None:
        table = self._saga
        statement = (
            update(table)
            .where(*self._this(table, held.tenant_id, held.saga_id))
            .where(table.c.revision == held.revision)
            .values(**values, revision=held.revision + 1, changed_at=DatabaseTime())
        )
        if cast("CursorResult[Any]", await session.execute(statement)).rowcount != 1:
            raise RevisionLost(f"saga {held.saga_id} is not at revision {held.revision}")
        if isinstance(held, Instance):
            held.revision += 1

    async def _save_step(self, session: AsyncSession, held: Instance, row: StepRow) -> None:
        outcome = held.progress.outcome(row.place)
        reply = row.reply
        values = {
            "messages": row.messages,
            "outcome": outcome,
            "ended_at": None if outcome is None else DatabaseTime(),
            "reply_id": None if reply is None else stored_id(reply.event_id),
            "reply_type": None if reply is None else reply.event_type,
            "reply_version": None if reply is None else reply.schema_version,
            "reply": None if reply is None else reply.payload,
        }
        if not row.stored:
            added = insert(self._step).values(
                **self._key(held, row.place),
                **values,
                number=row.place.step,
                sent_at=DatabaseTime(),
            )
            await session.execute(added)
        elif row.outcome is None:  # one that has an outcome is never written again
            key = self._key(held, row.place)
            these = (self._step.c[name] == value for name, value in key.items())
            await session.execute(update(self._step).where(*these).values(**values))
        row.stored, row.outcome = True, outcome

    def _key(self, held: Instance, place: Place) -> dict[str, Any]:
        return {
            "tenant_id": held.tenant_id,
            "saga_id": held.saga_id,
            "step": held.step_names[place.step],
            "part": Part(place.part),
        }

    @staticmethod
    def _this(table: Table, tenant_id: str, saga_id: UUID) -> tuple[ColumnElement[bool], ...]:
        return table.c.tenant_id == tenant_id, table.c.saga_id == saga_id
