"""Act on one event, once nothing of it is in flight."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, select

from pillarbox.errors import EventInFlight, EventNotTroubled, EventUnknown, InvalidRequest
from pillarbox.ops.act import PAUSE, Act, Desk, Done
from pillarbox.ops.claims import OpenClaim, claim_on, open_claims
from pillarbox.ops.decisions import lock_event
from pillarbox.schema.tables import outbox

_TROUBLED: Final = ("FAILED", "DEAD")


@dataclass(frozen=True, slots=True)
class Held:
    """An event that cannot be touched now; without a claim, another transaction has its row."""

    claim: OpenClaim | None


async def act_on_one(desk: Desk, act: Act, tenant_id: str, event_id: UUID) -> Done:
    """Act on an event as soon as no claim on it is open; raise `EventInFlight` after the limit."""
    attempt = partial(_attempt, desk, act, tenant_id, event_id)
    clock = asyncio.get_running_loop().time
    deadline = clock() + desk.limits.wait.total_seconds()
    while isinstance(met := await desk.transactions.write(attempt), Held):
        if clock() >= deadline:
            raise _in_flight(event_id, met.claim)
        await asyncio.sleep(PAUSE)
    desk.wake()
    return met


def checked_id(event_id: UUID | str) -> UUID:
    """Return an event id, or raise `InvalidRequest`."""
    if isinstance(event_id, UUID):
        return event_id
    try:
        return UUID(event_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequest("event_id", "is no UUID", "copy it from the list of events") from None


def _attempt(
    desk: Desk, act: Act, tenant_id: str, event_id: UUID, connection: Connection
) -> Done | Held:
    """Act on an event unless somebody else works on it."""
    row = lock_event(connection, desk.schema, tenant_id, event_id)
    if row is None:
        _refuse_unknown(desk, tenant_id, event_id, connection)
        return Held(None)
    # Looked for under the lock: no new claim can come to a row that is FAILED or DEAD.
    claim = claim_on(open_claims(connection, desk.schema), row.seq)
    if claim is not None or row.status == "PUBLISHING":
        return Held(claim)
    if row.status not in _TROUBLED:
        raise EventNotTroubled(str(event_id), row.status, act.decision)
    if not act.changes(row):
        raise EventNotTroubled(str(event_id), "skipped already", act.decision)
    released = desk.carry_out(connection, act, tenant_id, [row], {})
    return Done(act.decision, act.audit_id, 1, released)


def _refuse_unknown(desk: Desk, tenant_id: str, event_id: UUID, connection: Connection) -> None:
    table = desk.transactions.table(outbox)
    known = select(table.c.seq).where(table.c.tenant_id == tenant_id, table.c.id == event_id)
    if connection.execute(known).first() is None:
        raise EventUnknown(tenant_id, str(event_id))


def _in_flight(event_id: UUID, claim: OpenClaim | None) -> EventInFlight:
    if claim is None:
        return EventInFlight(str(event_id), None, None)
    return EventInFlight(str(event_id), str(claim.claim_id), str(claim.member_id))
