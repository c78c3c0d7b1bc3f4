"""What every act has in common: its limits, its audit, its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Row, text

from pillarbox.errors import InvalidRequest
from pillarbox.event.ids import IdMaker
from pillarbox.ops.audit import AuditEntry, described
from pillarbox.ops.decisions import Decision, decide
from pillarbox.ops.transactions import Transactions
from pillarbox.outbox.release import CHUNK, SKIPPED, Released
from pillarbox.outbox.wakeup import CHANNEL, wakeup_of

PAUSE: Final = 0.05  # seconds between two looks at an event in an open claim
_NOTIFY: Final = text("SELECT pg_notify(:channel, '')")


@dataclass(frozen=True, slots=True)
class ActLimits:
    """How long an act waits for open claims, and how much it does in one transaction."""

    wait: timedelta = timedelta(seconds=10)
    batch: int = 500
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        """Refuse limits with which nothing would ever be done."""
        for name in ("batch", "chunk"):
            if getattr(self, name) < 1:
                raise InvalidRequest(name, f"is {getattr(self, name)}", "use at least 1")


@dataclass(frozen=True, slots=True)
class Done:
    """What an act did.

    `audit_id` names it in `pillarbox_audit`; an act on many events writes one row for each batch of a
    tenant, and the later ones say which act they continue. `in_flight` events were left as they
    are, because their claims stayed open for as long as the act waits.
    """

    action: str
    audit_id: UUID
    affected: int
    released: Released = field(default_factory=Released)
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Act:
    """One decision with its reason, under the id that the audit gives it."""

    decision: Decision
    reason: str
    audit_id: UUID

    def changes(self, row: Row[Any]) -> bool:
        """Tell whether the decision makes a difference to a FAILED or DEAD event."""
        return self.decision is not Decision.SKIP or row.error_class != SKIPPED


@dataclass(frozen=True, slots=True)
class Desk:
    """Where an operator acts: the database, who it is, and the limits."""

    transactions: Transactions
    actor: str
    limits: ActLimits
    new_id: IdMaker

    @property
    def schema(self) -> str | None:
        """The schema of the tables."""
        return self.transactions.schema

    def carry_out(
        self,
        connection: Connection,
        act: Act,
        tenant_id: str,
        rows: Sequence[Row[Any]],
        subject: Mapping[str, Any],
    ) -> Released:
        """Do what was decided to locked rows, and record it in the same transaction."""
        released = decide(
            connection,
            self.schema,
            act.decision,
            tenant_id=tenant_id,
            rows=rows,
            chunk=self.limits.chunk,
        )
        self.record(
            connection, act, tenant_id, {**subject, "events": described(rows)}, affected=len(rows)
        )
        self.notify(connection)
        return released

    def record(
        self,
        connection: Connection,
        act: Act,
        tenant_id: str,
        subject: Mapping[str, Any],
        *,
        affected: int,
    ) -> None:
        """Write an act to the audit; what continues an act gets an id of its own."""
        audit_id = self.new_id() if "continues" in subject else act.audit_id
        entry = AuditEntry(
            tenant_id, audit_id, self.actor, act.decision, act.reason, subject, affected
        )
        entry.write(connection, self.schema)

    def notify(self, connection: Connection) -> None:
        """Wake projectors of other processes at the commit."""
        if connection.dialect.name == "postgresql":
            connection.execute(_NOTIFY, {"channel": CHANNEL})

    def wake(self) -> None:
        """Wake projectors of this process, after the commit."""
        wakeup_of(self.transactions.engine).tell()
