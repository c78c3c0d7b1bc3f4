"""The errors of Pillarbox, as one tree.

    PillarboxError
    ├── InvalidEvent          an event, payload, header, topic or key that cannot be delivered as it is
    │   ├── PayloadNotJson, PayloadNotUnicode, PayloadTooDeep, PayloadTooLarge
    │   ├── InvalidTopic, InvalidKey, InvalidHeader, InvalidTime, InvalidEventId
    │   ├── TopicUnknown      neither the event nor the call says where it goes
    │   └── DuplicateEventId  the id stands in the outbox already, with other content
    ├── InvalidConfig         a setting that cannot work
    ├── SetupError            the database or the machine is not ready
    │   ├── SchemaMissing, SchemaOutdated, SchemaInUse, PartitionsMissing
    │   ├── GrantsMissing, UnsafeRole, RowSecurityMissing
    │   └── DatabaseUnreachable, BusUnreachable, ScopeOverlaps, ServerUnavailable,
    │       ServerFailed
    ├── TenantError           TenantRequired, TenantMismatch
    ├── UnitOfWorkError       NoActiveUnitOfWork, CommitUnknown
    └── OpsError              an operator's call that was refused
        └── InvalidRequest, EventUnknown, EventNotTroubled, EventInFlight

Each class has a stable `code`; its page in the docs is `errors/<code>`.
"""

from typing import ClassVar


class PillarboxError(Exception):
    """Say what happened, what it means for delivery, and what to do."""

    code: ClassVar[str] = "pillarbox"


class InvalidEvent(PillarboxError, ValueError):
    """Refuse an event at the call that records it; nothing was written."""

    code = "invalid-event"

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field, self.problem, self.remedy = field, problem, remedy


class PayloadNotJson(InvalidEvent):
    """A payload holds a value that JSON cannot carry unchanged."""

    code = "payload-not-json"


class PayloadNotUnicode(InvalidEvent):
    """A payload holds text that UTF-8 cannot carry."""

    code = "payload-not-unicode"


class PayloadTooDeep(InvalidEvent):
    """A payload is nested deeper than the limit."""

    code = "payload-too-deep"


class PayloadTooLarge(InvalidEvent):
    """A payload with its headers is larger than the bus takes."""

    code = "payload-too-large"

    def __init__(self, size: int, limit: int, bus: str) -> None:
        super().__init__(
            "payload",
            f"with headers has {size:,} bytes > {limit:,} for {bus}",
            "store the content elsewhere and send a reference to it (claim check)",
        )
        self.size, self.limit, self.bus = size, limit, bus


class InvalidTopic(InvalidEvent):
    """A topic name is one that the bus in use refuses."""

    code = "invalid-topic"


class TopicUnknown(InvalidEvent):
    """Neither the event nor the call says which topic the event goes to."""

    code = "topic-unknown"


class InvalidKey(InvalidEvent):
    """A key or an identifier is empty, too long or holds control characters."""

    code = "invalid-key"


class InvalidHeader(InvalidEvent):
    """A header would not arrive unchanged at every broker."""

    code = "invalid-header"


class InvalidTime(InvalidEvent):
    """A date and time is naive or outside the range that every part can store."""

    code = "invalid-time"


class InvalidEventId(InvalidEvent):
    """An event id is not a UUID that the outbox table can hold."""

    code = "invalid-event-id"


class DuplicateEventId(InvalidEvent):
    """An event id stands in the outbox already, with other content."""

    code = "duplicate-event-id"

    def __init__(self, event_id: str, differing: str) -> None:
        super().__init__(
            "event_id",
            f"{event_id} is in the outbox already with another {differing}",
            "give every event an id of its own, or repeat the event unchanged",
        )
        self.event_id, self.differing = event_id, differing


class InvalidConfig(PillarboxError, ValueError):
    """Refuse a setting that cannot work, before anything starts."""

    code = "invalid-config"

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"{setting} {problem}; {remedy}")
        self.setting, self.problem, self.remedy = setting, problem, remedy


class SetupError(PillarboxError):
    """The database or the machine is not ready for the call."""

    code = "setup"


class SchemaMissing(SetupError):
    """The outbox tables are not in the database."""

    code = "schema-missing"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"the outbox tables are not in {where}, so no event can be recorded; "
            "run `pillarbox schema apply`"
        )
        self.where = where


class SchemaOutdated(SetupError):
    """The database schema is of another version than this code."""

    code = "schema-outdated"

    def __init__(self, found: int, needed: int) -> None:
        remedy = "run `pillarbox schema apply`" if found < needed else "upgrade pillarbox"
        super().__init__(f"schema is at {found}, this version needs {needed}; {remedy}")
        self.found, self.needed = found, needed


class SchemaInUse(SetupError):
    """The outbox tables hold events that were not delivered."""

    code = "schema-in-use"

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{waiting:,} events in the outbox are not SENT, dropping it would lose them; "
            "let the projector drain it, discard the rest, and repeat"
        )
        self.waiting = waiting


class PartitionsMissing(SetupError):
    """No partition of the outbox takes an event of today."""

    code = "partitions-missing"

    def __init__(self, table: str) -> None:
        super().__init__(
            f"{table} has no partition for today, so every transaction that records an event "
            "fails; run `pillarbox schema apply`"
        )
        self.table = table


class GrantsMissing(SetupError):
    """The role may not use the outbox tables."""

    code = "grants-missing"

    def __init__(self, role: str, table: str) -> None:
        super().__init__(
            f"role {role} may not read {table}; apply the output of `pillarbox schema grants`, "
            f"then `GRANT pillarbox_app TO {role}`"
        )
        self.role, self.table = role, table


class UnsafeRole(SetupError):
    """Row-level security does not hold for the role of the application."""

    code = "unsafe-role"

    def __init__(self, role: str, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"role {role} {' and '.join(reasons)}, so it can reach every tenant's rows; "
            "connect as a role that is only a member of pillarbox_app "
            "(`pillarbox schema grants`), or pass allow_unsafe_role=True"
        )
        self.role, self.reasons = role, reasons


class RowSecurityMissing(SetupError):
    """Tenancy is on, and nothing in the database keeps the tenants apart."""

    code = "row-security-missing"

    def __init__(self, tables: tuple[str, ...]) -> None:
        super().__init__(
            f"row-level security does not guard {', '.join(tables)}, so tenants are kept apart by "
            "the application alone; run `pillarbox schema apply --tenancy`, "
            "or pass allow_unsafe_role=True"
        )
        self.tables = tables


class DatabaseUnreachable(SetupError):
    """The database does not answer when a process starts."""

    code = "database-unreachable"

    def __init__(self, database: str) -> None:
        super().__init__(
            f"the database at {database} does not answer; is it running? "
            "`pillarbox dev` takes new ports each time, so paste the lines it prints again"
        )
        self.database = database


class BusUnreachable(SetupError):
    """The broker does not answer when a process starts."""

    code = "bus-unreachable"

    def __init__(self, bus: str, reason: str) -> None:
        super().__init__(
            f"the bus at {bus} does not answer: {reason}; events wait in the outbox until it does"
        )
        self.bus, self.reason = bus, reason


class ScopeOverlaps(SetupError):
    """Another projector serves some of the same tenants, and not the same set of them."""

    code = "scope-overlaps"

    def __init__(self, scope: str, other: str, where: str) -> None:
        super().__init__(
            f"this projector would serve {scope}, and one on {where} serves {other}; give both the "
            "same tenants, so that they share the work, or stop the other one first"
        )
        self.scope, self.other, self.where = scope, other, where


class TenantError(PillarboxError):
    """The tenant of a call is missing or is not the caller's own."""

    code = "tenant"


class TenantRequired(TenantError):
    """Tenancy is switched on and the call names no tenant."""

    code = "tenant-required"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a tenant, and neither an argument nor the context names one; "
            "pass tenant_id=… or enter `with tenant(…):` around the call"
        )


class TenantMismatch(TenantError):
    """A call names another tenant than the one its context belongs to."""

    code = "tenant-mismatch"

    def __init__(self, what: str, named: str, current: str) -> None:
        super().__init__(
            f"{what} names tenant {named!r} inside the context of tenant {current!r}; "
            "leave the context first, or drop the argument"
        )
        self.named, self.current = named, current


class UnitOfWorkError(PillarboxError):
    """A unit of work was used outside its life."""

    code = "unit-of-work"


class NoActiveUnitOfWork(UnitOfWorkError):
    """An event was recorded where no transaction can carry it."""

    code = "no-active-unit-of-work"


class OpsError(PillarboxError):
    """An operator's call was refused; nothing was changed."""

    code = "ops"


class InvalidRequest(OpsError, ValueError):
    """An operator's call has a filter, a reason or a value that cannot be meant."""

    code = "invalid-request"

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field, self.problem, self.remedy = field, problem, remedy


class EventUnknown(OpsError):
    """No event of this tenant and id stands in the outbox."""

    code = "event-unknown"

    def __init__(self, tenant_id: str, event_id: str) -> None:
        super().__init__(
            f"tenant {tenant_id!r} has no event {event_id} in the outbox; check both, and whether "
            "it was discarded or removed by retention"
        )
        self.tenant_id, self.event_id = tenant_id, event_id


class EventNotTroubled(OpsError):
    """An event is neither FAILED nor DEAD, so there is nothing to decide about it."""

    code = "event-not-troubled"

    def __init__(self, event_id: str, status: str, action: str) -> None:
        super().__init__(
            f"event {event_id} is {status}, and {action} is for FAILED and DEAD events; "
            "it was left as it is"
        )
        self.event_id, self.status, self.action = event_id, status, action


class EventInFlight(OpsError):
    """An event stands in an open claim, or another transaction works on it."""

    code = "event-in-flight"

    def __init__(self, event_id: str, claim_id: str | None, member_id: str | None) -> None:
        holder = (
            "another transaction works on it"
            if claim_id is None
            else f"claim {claim_id} of projector {member_id} is open"
        )
        super().__init__(
            f"event {event_id} may be on its way to the broker: {holder}; it was left as it is, "
            "try again when the claim has ended or its lease has expired"
        )
        self.event_id, self.claim_id, self.member_id = event_id, claim_id, member_id
