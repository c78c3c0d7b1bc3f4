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
    ├── UnitOfWorkError       NoActiveUnitOfWork, CommitUnknown, NotJoinable
    ├── IdempotencyError      an HTTP command that is not executed, or not answered
    │   ├── IdempotencyKeyInvalid, IdempotencyKeyMissing, IdempotencyKeyReused, TooManyKeys
    │   ├── RequestTooLarge, PrincipalMissing, NotAuthorized, CommandInProgress
    │   └── AnswerNotKept, CommandNotCommitted, CommandUnknown
    ├── InboxError            a message that must not take effect, or not once more
    │   └── InvalidMessageId, DuplicateMessage, ContentMismatch
    ├── ReadModelError        a read model that cannot be built, or is not there yet
    │   └── HistoryIncomplete, HistoryUndecided, ReadModelUnknown, ReadModelBehind,
    │       ReadModelSourceChanged, RebuildFailed
    ├── SagaError             a saga that cannot go on as things are
    │   └── SagaVersionMissing, SagaChanged
    └── OpsError              an operator's call that was refused
        └── InvalidRequest, EventUnknown, EventNotTroubled, EventInFlight, ParkedUnknown,
            ParkedInFlight, SagaUnknown, SagaNotOpen

Each class has a stable `code`; its page in the docs is `errors/<code>`.
"""

from pillarbox.errors.event import (
    DuplicateEventId,
    InvalidEvent,
    InvalidEventId,
    InvalidHeader,
    InvalidKey,
    InvalidTime,
    InvalidTopic,
    PayloadNotJson,
    PayloadNotUnicode,
    PayloadTooDeep,
    PayloadTooLarge,
    TopicUnknown,
)
from pillarbox.errors.inbox import ContentMismatch, DuplicateMessage, InboxError, InvalidMessageId
from pillarbox.errors.ops import (
    EventInFlight,
    EventNotTroubled,
    EventUnknown,
    InvalidRequest,
    OpsError,
    ParkedInFlight,
    ParkedUnknown,
    SagaNotOpen,
    SagaUnknown,
)
from pillarbox.errors.readmodel import (
    HistoryIncomplete,
    HistoryUndecided,
    ReadModelBehind,
    ReadModelError,
    ReadModelSourceChanged,
    ReadModelUnknown,
    RebuildFailed,
)
from pillarbox.errors.root import InvalidConfig, PillarboxError
from pillarbox.errors.saga import SagaChanged, SagaError, SagaVersionMissing
from pillarbox.errors.setup import (
    BusUnreachable,
    DatabaseUnreachable,
    GrantsMissing,
    PartitionsMissing,
    RowSecurityMissing,
    SchemaInUse,
    SchemaMissing,
    SchemaOutdated,
    ScopeOverlaps,
    SetupError,
    UnsafeRole,
)
from pillarbox.errors.tenancy import TenantError, TenantMismatch, TenantRequired
from pillarbox.errors.unit_of_work import NoActiveUnitOfWork, UnitOfWorkError

__all__ = [
    "BusUnreachable",
    "ContentMismatch",
    "DatabaseUnreachable",
    "DuplicateEventId",
    "DuplicateMessage",
    "EventInFlight",
    "EventNotTroubled",
    "EventUnknown",
    "GrantsMissing",
    "HistoryIncomplete",
    "HistoryUndecided",
    "InboxError",
    "InvalidConfig",
    "InvalidEvent",
    "InvalidEventId",
    "InvalidHeader",
    "InvalidKey",
    "InvalidMessageId",
    "InvalidRequest",
    "InvalidTime",
    "InvalidTopic",
    "NoActiveUnitOfWork",
    "OpsError",
    "ParkedInFlight",
    "ParkedUnknown",
    "PartitionsMissing",
    "PayloadNotJson",
    "PayloadNotUnicode",
    "PayloadTooDeep",
    "PayloadTooLarge",
    "PillarboxError",
    "ReadModelBehind",
    "ReadModelError",
    "ReadModelSourceChanged",
    "ReadModelUnknown",
    "RebuildFailed",
    "RowSecurityMissing",
    "SagaChanged",
    "SagaError",
    "SagaNotOpen",
    "SagaUnknown",
    "SagaVersionMissing",
    "SchemaInUse",
    "SchemaMissing",
    "SchemaOutdated",
    "ScopeOverlaps",
    "SetupError",
    "TenantError",
    "TenantMismatch",
    "TenantRequired",
    "TopicUnknown",
    "UnitOfWorkError",
    "UnsafeRole",
]
