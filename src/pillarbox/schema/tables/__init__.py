"""The tables, as SQLAlchemy metadata; a module for each part."""

from pillarbox.schema.tables.attaching import SCHEMA_VERSION, attach, table_in
from pillarbox.schema.tables.columns import SEQUENCES, metadata
from pillarbox.schema.tables.consumer import consumer_tenant
from pillarbox.schema.tables.idempotency import idempotency
from pillarbox.schema.tables.inbox import (
    inbox,
    inbox_applied,
    inbox_attempt,
    inbox_parked,
    inbox_task,
)
from pillarbox.schema.tables.outbox import (
    CLAIMABLE,
    DEFAULT_SHARDS,
    SET_ASIDE,
    TROUBLED,
    UNSETTLED,
    in_the_log,
    outbox,
    outbox_blocked_key,
    outbox_claim,
    outbox_claim_end,
    outbox_control,
    outbox_lease,
    outbox_member,
    outbox_settings,
    pillarbox_audit,
)
from pillarbox.schema.tables.readmodel import (
    readmodel,
    readmodel_applied,
    readmodel_held,
    readmodel_member,
)
from pillarbox.schema.tables.saga import saga, saga_step, saga_stray

# The projector and operators, who act with its rights, serve every tenant in these; in the others
# they have no business.
PROJECTOR_TABLES = (
    outbox,
    outbox_blocked_key,
    outbox_control,
    pillarbox_audit,
    inbox_parked,
    readmodel_applied,
    readmodel_held,
    saga,
    saga_step,
    saga_stray,
)
TENANT_TABLES = (
    *PROJECTOR_TABLES,
    inbox,
    inbox_applied,
    inbox_attempt,
    inbox_task,
    idempotency,
)

__all__ = [
    "CLAIMABLE",
    "DEFAULT_SHARDS",
    "PROJECTOR_TABLES",
    "SCHEMA_VERSION",
    "SEQUENCES",
    "SET_ASIDE",
    "TENANT_TABLES",
    "TROUBLED",
    "UNSETTLED",
    "attach",
    "consumer_tenant",
    "idempotency",
    "in_the_log",
    "inbox",
    "inbox_applied",
    "inbox_attempt",
    "inbox_parked",
    "inbox_task",
    "metadata",
    "outbox",
    "outbox_blocked_key",
    "outbox_claim",
    "outbox_claim_end",
    "outbox_control",
    "outbox_lease",
    "outbox_member",
    "outbox_settings",
    "pillarbox_audit",
    "readmodel",
    "readmodel_applied",
    "readmodel_held",
    "readmodel_member",
    "saga",
    "saga_step",
    "saga_stray",
    "table_in",
]
