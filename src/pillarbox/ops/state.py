"""Reading the state of the outbox: by its indexes, and never by counting everything."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from sqlalchemy import Connection, select
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import EventUnknown, InvalidRequest
from pillarbox.ops import listing, pending
from pillarbox.ops.claims import claim_on, open_claims
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.one_event import checked_id
from pillarbox.ops.transactions import Transactions
from pillarbox.ops.views import (
    BlockedKey,
    Control,
    Counted,
    EventDetails,
    Lease,
    Member,
    OldestPending,
    OutboxEvent,
    Overview,
)
from pillarbox.schema.tables import (
    outbox_blocked_key,
    outbox_control,
    outbox_lease,
    outbox_member,
)
from pillarbox.schema.types import DatabaseTime

CAP = 100_000
LIST_LIMIT = 1000


class State:
    """Read what waits, what failed and who delivers; with `tenant_id`, of that tenant alone.

        state = State(engine)
        (await state.backlog()).at_least

    Counts are exact up to a cap and say when they are not; none is 0 while a row waits.
    """

    def __init__(
        self, engine: AsyncEngine, *, schema: str | None = None, tenant_id: str | None = None
    ) -> None:
        self._transactions = Transactions(engine, schema, tenant_id)

    async def overview(self, *, cap: int = CAP, tenants: int = 100) -> Overview:
        """Read all gauges in one transaction."""
        return await self._transactions.read(partial(self._overview, cap, tenants))

    async def backlog(self, tenant_id: str | None = None, *, cap: int = CAP) -> Counted:
        """Count the events that are to be published: NEW, set aside or not, and in flight."""
        tenant = self._scope(tenant_id)
        return await self._transactions.read(
            lambda connection: pending.backlog(connection, self._transactions, tenant, cap)
        )

    async def failed(self, tenant_id: str | None = None, *, cap: int = CAP) -> Counted:
        """Count the events that will be tried again at a later time."""
        return await self._troubled("FAILED", tenant_id, cap)

    async def dead(self, tenant_id: str | None = None, *, cap: int = CAP) -> Counted:
        """Count the events that gave up and were not skipped."""
        return await self._troubled("DEAD", tenant_id, cap)

    async def oldest(self, *, tenants: int = 100) -> Sequence[OldestPending]:
        """Return the age of the oldest waiting event for each tenant, the oldest first."""
        return await self._transactions.read(
            lambda connection: pending.oldest(connection, self._transactions, tenants)
        )

    async def events(
        self,
        matching: EventFilter | None = None,
        *,
        status: str = "DEAD",
        limit: int = 100,
        below_seq: int | None = None,
    ) -> Sequence[OutboxEvent]:
        """List events of one state, the newest first; go on with the last one's `seq`.

        SENT events are found by the primary key: name a tenant and `after`. Among events that wait,
        the newest 10,000 of each kind are looked at; among those being sent, the oldest.
        """
        found = (matching or EventFilter()).within(self._transactions)
        wanted = listing.Listing(found, status, _checked_limit(limit), below_seq)
        return await self._transactions.read(
            lambda connection: wanted.read(connection, self._transactions)
        )

    async def show(self, event_id: UUID | str, *, tenant_id: str | None = None) -> EventDetails:
        """Return one event with its headers, and what keeps it from being delivered."""
        tenant = self._transactions.tenant(tenant_id, "showing an event")
        return await self._transactions.read(partial(self._show, tenant, checked_id(event_id)))

    async def members(self) -> Sequence[Member]:
        """Return the projectors that have registered, with what each holds now."""
        return await self._transactions.read(self._members)

    async def leases(self) -> Sequence[Lease]:
        """Return who owns which shard, and whether the lease still holds."""
        return await self._transactions.read(self._leases)

    async def blocked_keys(
        self,
        tenant_id: str | None = None,
        *,
        limit: int = 100,
        after: tuple[str, str] = ("", ""),
    ) -> Sequence[BlockedKey]:
        """List blocked keys by tenant and key; go on after the last one's."""
        tenant = self._scope(tenant_id)
        query = listing.blocked_query(
            self._transactions.table(outbox_blocked_key), tenant, after, _checked_limit(limit)
        )
        return await self._transactions.read(
            lambda connection: [BlockedKey(**row) for row in connection.execute(query).mappings()]
        )

    async def controls(self) -> Sequence[Control]:
        """Return what is paused or limited."""
        table = self._transactions.table(outbox_control)
        query = select(table).order_by(table.c.tenant_id, table.c.topic)
        return await self._transactions.read(
            lambda connection: [
                Control(**{**row, "paused": bool(row["paused"])})
                for row in connection.execute(query).mappings()
                if self._transactions.tenant_id in (None, row["tenant_id"])
            ]
        )

    def _scope(self, tenant_id: str | None) -> str | None:
        if tenant_id is None and self._transactions.tenant_id is None:
            return None
        return self._transactions.tenant(tenant_id, "reading the outbox")

    async def _troubled(self, status: str, tenant_id: str | None, cap: int) -> Counted:
        tenant = self._scope(tenant_id)
        return await self._transactions.read(
            lambda connection: pending.troubled(connection, self._transactions, tenant, status, cap)
        )

    def _overview(self, cap: int, tenants: int, connection: Connection) -> Overview:
        at, scope = self._transactions, self._scope(None)
        return Overview(
            backlog=pending.backlog(connection, at, scope, cap),
            failed=pending.troubled(connection, at, scope, "FAILED", cap),
            dead=pending.troubled(connection, at, scope, "DEAD", cap),
            by_tenant=pending.backlog_by_tenant(connection, at, cap),
            oldest=pending.oldest(connection, at, tenants),
        )

    def _show(self, tenant_id: str, event_id: UUID, connection: Connection) -> EventDetails:
        schema = self._transactions.schema
        row = listing.one(connection, self._transactions, tenant_id, event_id)
        if row is None:
            raise EventUnknown(tenant_id, str(event_id))
        claim = claim_on(open_claims(connection, schema), row.seq)
        event = listing.as_event(row, in_flight=claim is not None)
        table = self._transactions.table(outbox_blocked_key)
        block = listing.block_of(connection, table, event)
        return EventDetails(
            event,
            headers=row.event_metadata,
            claim_id=claim.claim_id if claim else None,
            blocked=block,
        )

    def _members(self, connection: Connection) -> Sequence[Member]:
        leases = [lease for lease in self._leases(connection) if lease.holds]
        table = self._transactions.table(outbox_member)
        query = select(table).order_by(table.c.started_at, table.c.member_id)
        return [
            Member(
                **row,
                shards=sum(lease.member_id == row["member_id"] for lease in leases),
            )
            for row in connection.execute(query).mappings()
        ]

    def _leases(self, connection: Connection) -> Sequence[Lease]:
        table = self._transactions.table(outbox_lease)
        holds = table.c.expires_at > DatabaseTime()
        query = select(table, holds.label("holds")).order_by(table.c.scope, table.c.shard)
        return [
            Lease(**{**row, "holds": bool(row["holds"]) and row["member_id"] is not None})
            for row in connection.execute(query).mappings()
        ]


def _checked_limit(limit: int) -> int:
    if not 1 <= limit <= LIST_LIMIT:
        raise InvalidRequest(
            "limit", f"is {limit}", f"use 1 to {LIST_LIMIT:,}, and go on from there"
        )
    return limit
