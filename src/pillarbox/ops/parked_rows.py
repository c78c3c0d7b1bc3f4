"""What redrive and discard do to messages that were set aside, inside one transaction."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, Final, assert_never
from uuid import UUID

from sqlalchemy import Connection, Row, Table, delete, select, update

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer.parked import LOCK, WAITING, going_on, holders, lock_number
from pillarbox.schema.tables import inbox_parked, table_in

REDRIVEN: Final = "redriven"
_SHOWN: Final = (
    "tenant_id", "parked_id", "seq", "state", "reason", "consumer", "message_id", "topic", "key",
    "event_type", "attempts", "holds_key", "error_class", "error_message",
)  # fmt: skip
_ERROR_LENGTH: Final = 200


class ParkedDecision(StrEnum):
    """What an operator decides about a message that was set aside.

    `REDRIVE` lets it come back, with all its attempts before it, as soon as it is first of its key.
    `DISCARD` deletes it and lets its key go on; the audit keeps what it was.
    """

    REDRIVE = "redrive"
    DISCARD = "discard"


def lock_rows(
    connection: Connection, schema: str | None, tenant_id: str, ids: Collection[UUID]
) -> Sequence[Row[Any]]:
    """Lock messages that nobody else has, with their keys; in the order of their numbers.

    The keys come first, in one order: a consumer has its row before it asks for the key.
    """
    table = table_in(inbox_parked, schema)
    these = (table.c.tenant_id == tenant_id, table.c.parked_id.in_(ids))
    if connection.dialect.name == "postgresql":
        keys = connection.execute(select(table.c.consumer, table.c.key).where(*these).distinct())
        numbers = {lock_number(tenant_id, row.consumer, row.key) for row in keys if row.key}
        for number in sorted(numbers):
            connection.execute(LOCK, {"number": number})
    query = select(*(table.c[name] for name in _SHOWN)).where(*these).order_by(table.c.seq)
    return connection.execute(query.with_for_update(skip_locked=True)).all()


def carry_out(
    connection: Connection, schema: str | None, decision: ParkedDecision, rows: Sequence[Row[Any]]
) -> None:
    """Carry out a decision on locked rows, and let their keys go on."""
    table = table_in(inbox_parked, schema)
    for row in rows:
        this = (table.c.tenant_id == row.tenant_id, table.c.parked_id == row.parked_id)
        match decision:
            case ParkedDecision.REDRIVE:
                statement = update(table).where(*this)
                connection.execute(statement.values(**_as_waiting(connection, table, row)))
            case ParkedDecision.DISCARD:
                connection.execute(delete(table).where(*this))
            case _:
                assert_never(decision)
    now = SYSTEM_CLOCK.now()
    for tenant_id, consumer, key in {(row.tenant_id, row.consumer, row.key) for row in rows}:
        if key is not None:
            connection.execute(going_on(table, tenant_id, consumer, key, now))


def described(rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    """Return messages as they were before an act; never their contents."""
    names = [name for name in _SHOWN if name not in ("tenant_id", "parked_id", "error_message")]
    return [
        {
            "id": str(row.parked_id),
            **{name: getattr(row, name) for name in names},
            "error_message": row.error_message and row.error_message[:_ERROR_LENGTH],
        }
        for row in rows
    ]


def _as_waiting(connection: Connection, table: Table, row: Row[Any]) -> dict[str, Any]:
    """Let a message come back: now, unless others of its key are before it."""
    first: UUID | None = row.parked_id
    if row.holds_key:
        query = holders(table, row.tenant_id, row.consumer, row.key).limit(1)
        first = connection.scalar(query)
    due = SYSTEM_CLOCK.now() if first == row.parked_id else None
    return {
        "state": WAITING,
        "reason": REDRIVEN,
        "attempts": 0,
        "due_at": due,
        "error_class": None,
        "error_message": None,
    }
