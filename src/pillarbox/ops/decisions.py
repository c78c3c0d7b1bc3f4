"""What retry, skip and discard do to rows, inside one transaction."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy import Connection, Row, Select, case, delete, func, literal, null, select, update

from pillarbox.outbox.release import EXPIRED, SKIPPED, Released, release_keys, troubled
from pillarbox.schema.tables import outbox, table_in
from pillarbox.schema.types import DatabaseTime, TransactionId

_SHOWN = (
    "id", "event_type", "topic", "key", "seq", "status", "retry_count", "error_class",
    "error_message",
)  # fmt: skip


class Decision(StrEnum):
    """What an operator decides about a FAILED or DEAD event.

    `RETRY` makes it NEW with all its attempts before it; its key stays blocked behind it.
    `SKIP` leaves it in the table, DEAD with the error class `skipped`, and releases its key.
    `DISCARD` deletes it and releases its key; the audit keeps what it was.
    """

    RETRY = "retry"
    SKIP = "skip"
    DISCARD = "discard"


def lock_event(
    connection: Connection, schema: str | None, tenant_id: str, event_id: UUID
) -> Row[Any] | None:
    """Lock one event, whatever its state; None when it is gone or someone else has it."""
    return connection.execute(_locking(schema, tenant_id, [event_id])).one_or_none()


def lock_troubled(
    connection: Connection, schema: str | None, tenant_id: str, event_ids: Collection[UUID]
) -> Sequence[Row[Any]]:
    """Lock those of the events that are FAILED or DEAD and that nobody else has."""
    query = _locking(schema, tenant_id, event_ids)
    return connection.execute(query.where(troubled(table_in(outbox, schema)))).all()


def _locking(
    schema: str | None, tenant_id: str, event_ids: Collection[UUID]
) -> Select[tuple[Any, ...]]:
    table = table_in(outbox, schema)
    return (
        select(*(table.c[name] for name in _SHOWN))
        .where(table.c.tenant_id == tenant_id, table.c.id.in_(event_ids))
        .order_by(table.c.seq)
        .with_for_update(skip_locked=True)
    )


def decide(
    connection: Connection,
    schema: str | None,
    decision: Decision,
    *,
    tenant_id: str,
    rows: Sequence[Row[Any]],
    chunk: int,
) -> Released:
    """Carry out a decision on locked rows; return what it released."""
    table = table_in(outbox, schema)
    these = (table.c.tenant_id == tenant_id, table.c.id.in_([row.id for row in rows]))
    match decision:
        case Decision.RETRY:
            connection.execute(update(table).where(*these).values(**_as_new(table.c)))
            return Released()
        case Decision.SKIP:
            connection.execute(update(table).where(*these).values(**_as_skipped(table.c)))
        case Decision.DISCARD:
            connection.execute(delete(table).where(*these))
        case _:
            assert_never(decision)
    blockers = {row.id: row.key for row in rows}
    return release_keys(connection, tenant_id, blockers, schema=schema, chunk=chunk)


def _as_new(columns: Any) -> dict[str, Any]:
    """Make an event claimable; the audit keeps its last error."""
    return {
        "status": "NEW",
        "set_aside": None,
        "txid": TransactionId(),  # the feed finds it by the transaction that brought it back
        "retry_count": 0,
        # Those behind it may have gone: this tells that it comes late because somebody wanted it.
        "retry_after": DatabaseTime(),
        "error_class": None,
        "error_message": None,
        # Whoever retries an expired event wants it sent; it would expire again at once.
        "expires_at": case((columns.error_class == EXPIRED, null()), else_=columns.expires_at),
    }


def _as_skipped(columns: Any) -> dict[str, Any]:
    """Keep an event for reading, with its last error in the text."""
    known = func.coalesce(columns.error_class, literal("unknown"))
    return {
        "status": "DEAD",
        "retry_after": None,
        "error_class": SKIPPED,
        "error_message": known + ": " + func.coalesce(columns.error_message, literal("")),
    }
