"""What reading the state returns: plain values for people, tables and gauges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from pillarbox.outbox.release import SKIPPED


@dataclass(frozen=True, slots=True)
class Counted:
    """A count that is exact, or that stopped at its cap."""

    at_least: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.at_least:,}" if self.exact else f"at least {self.at_least:,}"


@dataclass(frozen=True, slots=True)
class OldestPending:
    """How long the oldest waiting event of a tenant has waited, by the database's clock."""

    tenant_id: str
    since: datetime
    age: timedelta


@dataclass(frozen=True, slots=True)
class Overview:
    """The gauges, read together."""

    backlog: Counted
    failed: Counted
    dead: Counted
    by_tenant: Mapping[str, int]
    oldest: Sequence[OldestPending]


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event as a list shows it, without its payload; `status` is the live one."""

    id: UUID
    tenant_id: str
    status: str
    set_aside: str | None
    seq: int
    event_type: str
    topic: str
    key: str
    occurred_at: datetime
    created_at: datetime
    deliver_at: datetime | None
    expires_at: datetime | None
    published_at: datetime | None
    retry_count: int
    retry_after: datetime | None
    error_class: str | None
    error_message: str | None

    @property
    def skipped(self) -> bool:
        """Whether an operator or the policy let its key go on without it."""
        return self.status == "DEAD" and self.error_class == SKIPPED


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """A key whose events above `seq` wait for an event, or for a topic."""

    tenant_id: str
    key: str
    event_id: UUID
    seq: int
    blocked_at: datetime
    topic: str | None


@dataclass(frozen=True, slots=True)
class EventDetails:
    """One event, its headers, the open claim it stands in, and the block of its key."""

    event: OutboxEvent
    headers: Mapping[str, str]
    claim_id: UUID | None
    blocked: BlockedKey | None

    @property
    def waits_for(self) -> UUID | None:
        """The event of the same key that must be decided about first."""
        if self.blocked is None or self.event.seq <= self.blocked.seq:
            return None
        return self.blocked.event_id


@dataclass(frozen=True, slots=True)
class Member:
    """A projector that has registered, and how many shards it holds now."""

    member_id: UUID
    scope: str
    service: str
    host: str
    process_id: int
    version: str
    started_at: datetime
    seen_at: datetime
    shards: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Who owns a shard; `holds` by the database's clock."""

    scope: str
    shard: int
    member_id: UUID | None
    epoch: int
    expires_at: datetime | None
    holds: bool


@dataclass(frozen=True, slots=True)
class Control:
    """What is paused or limited; `*` stands for all."""

    tenant_id: str
    topic: str
    paused: bool
    events_per_second: int | None
    changed_at: datetime
