"""The record of operators' acts: who did what to which events, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, insert

from pillarbox.errors import InvalidRequest
from pillarbox.schema.tables import pillarbox_audit, table_in

ALL: Final = "*"
_ACTOR_LENGTH: Final = 255
_REASON_LENGTH: Final = 2000
_ERROR_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the audit; it is written in the transaction of the act itself."""

    tenant_id: str
    audit_id: UUID
    actor: str
    action: str
    reason: str
    subject: Mapping[str, Any]
    affected: int

    def write(self, connection: Connection, schema: str | None) -> None:
        """Add the row; the audit is never changed."""
        connection.execute(
            insert(table_in(pillarbox_audit, schema)).values(
                tenant_id=self.tenant_id,
                audit_id=self.audit_id,
                actor=self.actor,
                action=self.action,
                reason=self.reason,
                subject=dict(self.subject),
                affected=self.affected,
            )
        )


def described(rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    """Return events as they were before an act; never their payloads."""
    return [
        {
            "id": str(row.id),
            "event_type": row.event_type,
            "topic": row.topic,
            "key": row.key,
            "seq": row.seq,
            "status": row.status,
            "retry_count": row.retry_count,
            "error_class": row.error_class,
            "error_message": row.error_message and row.error_message[:_ERROR_LENGTH],
        }
        for row in rows
    ]


def checked_actor(actor: str) -> str:
    """Return who acts, or raise `InvalidRequest`."""
    return _checked("actor", actor, _ACTOR_LENGTH, "say who acts, by a name or an address")


def checked_reason(reason: str) -> str:
    """Return why, or raise `InvalidRequest`."""
    return _checked("reason", reason, _REASON_LENGTH, "say why, for whoever reads the audit")


def _checked(field: str, value: str, longest: int, remedy: str) -> str:
    text = str(value or "").strip()
    if not text:
        raise InvalidRequest(field, "is empty", remedy)
    if len(text) > longest:
        raise InvalidRequest(field, f"has {len(text):,} characters > {longest:,}", "shorten it")
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidRequest(field, "holds NUL or a lone surrogate", "remove it")
    return text
