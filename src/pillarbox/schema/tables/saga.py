"""The tables of sagas."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
    func,
)

from pillarbox.schema.tables.columns import IDENTIFIER, TENANT, metadata, partial
from pillarbox.schema.types import EventIdType, StoredJson, UtcTime

# One row for each saga: how it stands, what it waits for, and until when.
saga = Table(
    "saga",
    metadata,
    Column("due_at", UtcTime),
    Column("started_at", UtcTime, nullable=False, server_default=func.now()),
    Column("changed_at", UtcTime, nullable=False, server_default=func.now()),
    Column("finished_at", UtcTime),
    Column("version", Integer, nullable=False),
    Column("revision", Integer, nullable=False, server_default="1"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("tenant_id", TENANT, primary_key=True),
    Column("saga_id", EventIdType, primary_key=True),
    Column("name", IDENTIFIER, nullable=False),
    Column("state", String(12), nullable=False),
    Column("step", String(100)),
    Column("part", String(4)),
    Column("cause_step", String(100)),
    Column("cause", String(10)),
    Column("wish", String(10)),
    Column("start_id", IDENTIFIER, nullable=False),
    Column("start", StoredJson, nullable=False),
    Column("steps", StoredJson, nullable=False),
    Column("error_class", String(100)),
    Column("error_message", Text),
    CheckConstraint(
        "state IN ('RUNNING', 'COMPENSATING', 'STUCK', 'COMPLETED', 'COMPENSATED', 'CANCELLED')",
        name="ck_saga_state",
    ),
    # One event starts a saga once, also when the inbox has forgotten it.
    Index("ix_saga_start", "tenant_id", "name", "start_id", unique=True),
    partial("ix_saga_due", "name", "due_at", where="due_at IS NOT NULL"),
    partial("ix_saga_open", "name", "state", "saga_id", where="finished_at IS NULL"),
    partial("ix_saga_finished", "name", "finished_at", where="finished_at IS NOT NULL"),
)

# One row for each half of a step that was begun, with its outcome once it has one.
saga_step = Table(
    "saga_step",
    metadata,
    Column("sent_at", UtcTime, nullable=False, server_default=func.now()),
    Column("ended_at", UtcTime),
    Column("number", SmallInteger, nullable=False),
    Column("reply_version", Integer),
    Column("tenant_id", TENANT, primary_key=True),
    Column("saga_id", EventIdType, primary_key=True),
    Column("step", String(100), primary_key=True),
    Column("part", String(4), primary_key=True),
    Column("outcome", String(10)),
    Column("reply_id", String(255)),
    Column("reply_type", String(255)),
    Column("messages", StoredJson, nullable=False),
    Column("reply", StoredJson(none_as_null=True)),
    CheckConstraint("part IN ('do', 'undo')", name="ck_saga_step_part"),
)

# Replies to a saga that did nothing: they came twice, late, after the end, or to nothing it sent.
saga_stray = Table(
    "saga_stray",
    metadata,
    Column("received_at", UtcTime, nullable=False, server_default=func.now()),
    Column("tenant_id", TENANT, primary_key=True),
    Column("saga_id", EventIdType, primary_key=True),
    Column("message_id", IDENTIFIER, primary_key=True),
    Column("verdict", String(8), nullable=False),
    Column("step", String(100)),
    Column("part", String(4)),
    Column("event_type", String(255), nullable=False),
)
