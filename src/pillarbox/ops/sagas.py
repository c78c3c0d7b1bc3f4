"""Sagas for operators: list them, look at one, and say what is wished of it, with a reason.

A wish stands in the saga's row until the saga's own process carries it out, which has the definition
and the right to record messages. It does so within a second, or with the next reply.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import InvalidRequest, SagaNotOpen, SagaUnknown
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.measures import Sample
from pillarbox.ops.act import ActLimits, Desk, Done
from pillarbox.ops.audit import AuditEntry, checked_actor, checked_reason
from pillarbox.ops.one_event import checked_id
from pillarbox.ops.saga_views import (
    SagaDetails,
    SagaFilter,
    SagaStep,
    SagaView,
    StrayReply,
    saga_gauges,
    seen,
)
from pillarbox.ops.transactions import Transactions
from pillarbox.saga.machine import ENDED, Part, Wish
from pillarbox.schema.tables import saga, saga_step, saga_stray
from pillarbox.schema.types import DatabaseTime

LIST_LIMIT: Final = 1_000


class SagaOps:
    """Read and act on sagas, for the command line, the dashboard and programs alike.

        ops = SagaOps(engine, actor="jane@example.com")
        for saga in await ops.sagas(SagaFilter(state="STUCK")): ...
        await ops.resume(saga_id, tenant_id="acme", reason="the warehouse answers again")

    Every act commits together with its row in `pillarbox_audit`, and is carried out by the saga's
    own process. With `tenant_id` the operator reaches that tenant alone.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        actor: str,
        schema: str | None = None,
        tenant_id: str | None = None,
        new_id: IdMaker | None = None,
    ) -> None:
        self._desk = Desk(
            Transactions(engine, schema, tenant_id),
            checked_actor(actor),
            ActLimits(),
            new_id or id_maker(),
        )

    async def sagas(
        self,
        matching: SagaFilter | None = None,
        *,
        limit: int = 100,
        below: UUID | str | None = None,
    ) -> Sequence[SagaView]:
        """List sagas, the newest first; go on with the last one's `saga_id`."""
        if not 1 <= limit <= LIST_LIMIT:
            raise InvalidRequest("limit", f"is {limit}", f"use 1 to {LIST_LIMIT:,}")
        at = self._desk.transactions
        table = at.table(saga)
        found = (matching or SagaFilter()).within(at)
        query = select(table).where(*found.conditions(table)).order_by(table.c.saga_id.desc())
        if below is not None:
            query = query.where(table.c.saga_id < checked_id(below))
        return await at.read(
            lambda connection: [seen(row) for row in connection.execute(query.limit(limit))]
        )

    async def show(self, saga_id: UUID | str, *, tenant_id: str | None = None) -> SagaDetails:
        """Return one saga with its steps, and with replies that did nothing."""
        tenant = self._desk.transactions.tenant(tenant_id, "showing a saga")
        body = partial(self._show, tenant, checked_id(saga_id))
        return await self._desk.transactions.read(body)

    async def running(self) -> dict[tuple[str, str], int]:
        """Count the sagas that have not ended, by name and state."""
        at = self._desk.transactions
        table = at.table(saga)
        columns = table.c
        query = select(columns.name, columns.state, func.count()).where(
            columns.finished_at.is_(None), *SagaFilter().within(at).conditions(table)
        )
        query = query.group_by(columns.name, columns.state)
        return await at.read(
            lambda connection: {
                (name, state): number for name, state, number in connection.execute(query)
            }
        )

    async def resume(
        self, saga_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Send once more what a saga waits for, with all its tries before it."""
        return await self._act(Wish.RESUME, saga_id, reason, tenant_id)

    async def cancel(
        self, saga_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """End a saga as it stands: nothing more is sent, and nothing is undone."""
        return await self._act(Wish.CANCEL, saga_id, reason, tenant_id)

    async def compensate(
        self, saga_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Give up the step that is awaited, and undo what may have taken effect."""
        return await self._act(Wish.COMPENSATE, saga_id, reason, tenant_id)

    async def skip(self, saga_id: UUID | str, *, reason: str, tenant_id: str | None = None) -> Done:
        """Go on as if the reply had come; a step that was skipped is never undone."""
        return await self._act(Wish.SKIP, saga_id, reason, tenant_id)

    async def _act(
        self, wish: Wish, saga_id: UUID | str, reason: str, tenant_id: str | None
    ) -> Done:
        at = self._desk.transactions
        tenant, why = at.tenant(tenant_id, wish), checked_reason(reason)
        return await at.write(partial(self._wish, wish, tenant, checked_id(saga_id), why))

    def _wish(
        self, wish: Wish, tenant_id: str, saga_id: UUID, reason: str, connection: Connection
    ) -> Done:
        """Write a wish into a saga's row, under its lock, and record it."""
        table = self._desk.transactions.table(saga)
        this = (table.c.tenant_id == tenant_id, table.c.saga_id == saga_id)
        row = connection.execute(select(table).where(*this).with_for_update()).first()
        if row is None:
            raise SagaUnknown(tenant_id, str(saga_id))
        goes_back = row.part == Part.UNDO
        if row.state in ENDED or (wish is Wish.COMPENSATE and goes_back):
            raise SagaNotOpen(str(saga_id), row.state, wish)
        values: dict[str, Any] = {
            "wish": wish,
            "due_at": DatabaseTime(),
            "changed_at": DatabaseTime(),
            "revision": table.c.revision + 1,
        }
        connection.execute(update(table).where(*this).values(**values))
        audit_id = self._desk.new_id()
        subject = {
            "saga_id": str(saga_id), "name": row.name, "version": row.version, "state": row.state,
            "step": row.step, "part": row.part, "tries": row.tries, "wish": row.wish,
        }  # fmt: skip
        entry = AuditEntry(tenant_id, audit_id, self._desk.actor, wish, reason, subject, 1)
        entry.write(connection, self._desk.schema)
        return Done(wish, audit_id, 1)

    def _show(self, tenant_id: str, saga_id: UUID, connection: Connection) -> SagaDetails:
        def of(table: Any) -> Any:
            found = self._desk.transactions.table(table)
            columns = found.c
            return select(found).where(columns.tenant_id == tenant_id, columns.saga_id == saga_id)

        row = connection.execute(of(saga)).first()
        if row is None:
            raise SagaUnknown(tenant_id, str(saga_id))
        steps = connection.execute(of(saga_step).order_by("sent_at", "number")).all()
        strays = connection.execute(of(saga_stray).order_by("received_at")).all()
        return SagaDetails(
            seen(row),
            tuple(row.steps),
            tuple(SagaStep.of(each) for each in steps),
            tuple(StrayReply.of(each) for each in strays),
        )


async def read_saga_gauges(ops: SagaOps) -> tuple[Sample, ...]:
    """Read how many sagas run, go back or stand STUCK; for each scrape, not for each message."""
    return saga_gauges(await ops.running())
