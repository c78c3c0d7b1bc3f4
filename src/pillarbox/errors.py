"""The errors of Pillarbox, as one tree.

    PillarboxError
    ├── InvalidEvent          an event, payload, header, topic or key that cannot be delivered as it is
    │   ├── PayloadNotJson, PayloadNotUnicode, PayloadTooDeep, PayloadTooLarge
    │   ├── InvalidTopic, InvalidKey, InvalidHeader, InvalidTime, InvalidEventId
    │   ├── TopicUnknown      neither the event nor the call says where it goes
    │   └── DuplicateEventId  the id stands in the outbox already, with other content
    ├── InvalidConfig         a setting that cannot work
    ├── SetupError            the database or the machine is not ready
    │   ├── SchemaMissing, SchemaOutdated, UnsafeRole, ServerUnavailable
    ├── TenantError           TenantRequired, TenantMismatch
    └── UnitOfWorkError       NoActiveUnitOfWork, CommitUnknown

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
