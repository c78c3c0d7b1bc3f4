"""Messages that consumers set aside: read them, redrive them, discard them; each act with a reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import InvalidRequest, ParkedInFlight, ParkedUnknown
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.ops.act import ActLimits, Desk, Done
from pillarbox.ops.audit import ALL, AuditEntry, checked_actor, checked_reason
from pillarbox.ops.many_events import PAGE, batches
from pillarbox.ops.one_event import checked_id
from pillarbox.ops.parked_filter import ParkedFilter
from pillarbox.ops.parked_rows import ParkedDecision, carry_out, described, lock_rows
from pillarbox.ops.transactions import Transactions
from pillarbox.schema.tables import inbox_parked

LIST_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """One message as a list shows it, without its content."""

    tenant_id: str
    parked_id: UUID
    seq: int
    state: str
    reason: str
    consumer: str
    message_id: str
    topic: str
    key: str | None
    event_type: str | None
    source: str | None
    attempts: int
    holds_key: bool
    first_at: datetime
    last_at: datetime
    due_at: datetime | None
    error_class: str | None
    error_message: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class ParkedDetails:
    """One message, with its content and how many wait behind it."""

    message: ParkedMessage
    headers: Mapping[str, str]
    content_type: str | None
    body: bytes | None
    behind: int


@dataclass(frozen=True, slots=True)
class _Act:
    decision: ParkedDecision
    reason: str
    audit_id: UUID


class ParkedOps:
    """Read and act on messages that were set aside, for the command line, the dashboard, programs.

        ops = ParkedOps(engine, actor="jane@example.com")
        for message in await ops.messages(ParkedFilter(consumer="payments")): ...
        await ops.redrive(parked_id, tenant_id="acme", reason="the customer is there now")

    Every act commits together with its row in `pillarbox_audit`. With `tenant_id` the operator
    reaches that tenant alone. A message that a consumer is handling is left to it.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        actor: str,
        schema: str | None = None,
        tenant_id: str | None = None,
        limits: ActLimits | None = None,
        new_id: IdMaker | None = None,
    ) -> None:
        self._desk = Desk(
            Transactions(engine, schema, tenant_id),
            checked_actor(actor),
            limits or ActLimits(),
            new_id or id_maker(),
        )

    async def messages(
        self,
        matching: ParkedFilter | None = None,
        *,
        limit: int = 100,
        below_seq: int | None = None,
    ) -> Sequence[ParkedMessage]:
        """List messages of one state, the newest first; go on with the last one's `seq`."""
        if not 1 <= limit <= LIST_LIMIT:
            raise InvalidRequest("limit", f"is {limit}", f"use 1 to {LIST_LIMIT:,}")
        at = self._desk.transactions
        table = at.table(inbox_parked)
        found = (matching or ParkedFilter()).within(at)
        query = select(table).where(*found.conditions(table)).order_by(table.c.seq.desc())
        if below_seq is not None:
            query = query.where(table.c.seq < below_seq)
        return await at.read(
            lambda connection: [_message(row) for row in connection.execute(query.limit(limit))]
        )

    async def show(self, parked_id: UUID | str, *, tenant_id: str | None = None) -> ParkedDetails:
        """Return one message with its content."""
        tenant = self._desk.transactions.tenant(tenant_id, "showing a message")
        body = partial(self._show, tenant, checked_id(parked_id))
        return await self._desk.transactions.read(body)

    async def redrive(
        self, parked_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Let a message come back by itself, with all its attempts before it.

        Its key goes on behind it. A message that its key has passed comes after those that passed.
        """
        return await self._one(ParkedDecision.REDRIVE, parked_id, reason, tenant_id)

    async def discard(
        self, parked_id: UUID | str, *, reason: str, tenant_id: str | None = None
    ) -> Done:
        """Delete a message and let its key go on; the audit keeps what it was."""
        return await self._one(ParkedDecision.DISCARD, parked_id, reason, tenant_id)

    async def redrive_all(self, matching: ParkedFilter, *, reason: str) -> Done:
        """Redrive every message that matches, in batches."""
        return await self._all(ParkedDecision.REDRIVE, matching, reason)

    async def discard_all(self, matching: ParkedFilter, *, reason: str) -> Done:
        """Discard every message that matches, in batches."""
        return await self._all(ParkedDecision.DISCARD, matching, reason)

    def _show(self, tenant_id: str, parked_id: UUID, connection: Connection) -> ParkedDetails:
        table = self._desk.transactions.table(inbox_parked)
        columns = table.c
        this = select(table).where(columns.tenant_id == tenant_id, columns.parked_id == parked_id)
        row = connection.execute(this).first()
        if row is None:
            raise ParkedUnknown(tenant_id, str(parked_id))
        behind = select(func.count()).where(
            columns.tenant_id == tenant_id,
            columns.consumer == row.consumer,
            columns.key == row.key,
            columns.seq > row.seq,
        )
        number = connection.scalar(behind) if row.holds_key else 0
        return ParkedDetails(_message(row), row.headers, row.content_type, row.body, number or 0)

    async def _one(
        self,
        decision: ParkedDecision,
        parked_id: UUID | str,
        reason: str,
        tenant_id: str | None,
    ) -> Done:
        at = self._desk.transactions
        tenant = at.tenant(tenant_id, decision)
        act = self._act(decision, reason)
        body = partial(self._act_on, act, tenant, [checked_id(parked_id)], {})
        if not await at.write(body):
            await at.read(partial(self._show, tenant, checked_id(parked_id)))
            raise ParkedInFlight(str(parked_id))
        return Done(decision, act.audit_id, 1)

    async def _all(self, decision: ParkedDecision, matching: ParkedFilter, reason: str) -> Done:
        at = self._desk.transactions
        found = matching.within(at).for_act()
        act = self._act(decision, reason)
        affected = met = 0
        for tenant_id, ids in batches(await self._matching(found), self._desk.limits.batch):
            subject: dict[str, Any] = {"filter": found.as_json()}
            if affected:
                subject["continues"] = str(act.audit_id)
            met += len(ids)
            affected += await at.write(partial(self._act_on, act, tenant_id, ids, subject))
        if not affected:
            subject = {"filter": found.as_json()}
            nothing = partial(self._record, act, found.tenant_id or ALL, subject, 0)
            await at.write(nothing)
        return Done(decision, act.audit_id, affected, in_flight=met - affected)

    async def _matching(self, found: ParkedFilter) -> list[tuple[str, UUID]]:
        """Name the messages that match now, by tenant and number."""
        read, table = self._desk.transactions.read, self._desk.transactions.table(inbox_parked)
        columns = table.c
        query = (
            select(columns.tenant_id, columns.parked_id, columns.seq)
            .where(*found.conditions(table))
            .order_by(columns.tenant_id, columns.seq)
            .limit(PAGE)
        )
        names: list[tuple[str, UUID]] = []
        after = ("", 0)
        while True:
            later = query.where(tuple_(columns.tenant_id, columns.seq) > tuple_(*_literals(after)))
            page = await read(lambda connection, asked=later: connection.execute(asked).all())  # type: ignore[misc]
            if not page:
                return names
            names += [(row.tenant_id, row.parked_id) for row in page]
            after = page[-1].tenant_id, page[-1].seq

    def _act_on(
        self,
        act: _Act,
        tenant_id: str,
        ids: Sequence[UUID],
        subject: Mapping[str, Any],
        connection: Connection,
    ) -> int:
        """Act on messages that nobody else has, and record it in the same transaction."""
        rows = lock_rows(connection, self._desk.schema, tenant_id, ids)
        if rows:
            carry_out(connection, self._desk.schema, act.decision, rows)
            told = {**subject, "messages": described(rows)}
            self._record(act, tenant_id, told, len(rows), connection)
        return len(rows)

    def _record(
        self,
        act: _Act,
        tenant_id: str,
        subject: Mapping[str, Any],
        affected: int,
        connection: Connection,
    ) -> None:
        audit_id = self._desk.new_id() if "continues" in subject else act.audit_id
        entry = AuditEntry(
            tenant_id, audit_id, self._desk.actor, act.decision, act.reason, subject, affected
        )
        entry.write(connection, self._desk.schema)

    def _act(self, decision: ParkedDecision, reason: str) -> _Act:
        return _Act(decision, checked_reason(reason), self._desk.new_id())


_SHOWN: Final = tuple(field.name for field in fields(ParkedMessage))


def _message(row: Row[Any]) -> ParkedMessage:
    values = {name: getattr(row, name) for name in _SHOWN}
    return ParkedMessage(**{**values, "holds_key": bool(row.holds_key)})


def _literals(after: tuple[str, int]) -> Iterator[Any]:
    return map(literal, after)
