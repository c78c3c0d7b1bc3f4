"""The tables of the inbox: what was processed, tried, set aside, and is still to be done."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    func,
)

from pillarbox.schema.tables.columns import BIG, IDENTIFIER, TENANT, metadata, partial
from pillarbox.schema.types import EventIdType, NextNumber, StoredJson, UtcTime

inbox = Table(
    "inbox",
    metadata,
    Column("processed_at", UtcTime, nullable=False, server_default=func.now()),
    Column("tenant_id", TENANT, primary_key=True),
    Column("consumer", IDENTIFIER, primary_key=True),
    Column("message_id", IDENTIFIER, primary_key=True),
    Column("event_type", String(255), nullable=False),
    Column("source", String(255)),
    Column("payload_hash", String(64)),
    Column("payload", StoredJson(none_as_null=True)),
    Column("extra_data", StoredJson(none_as_null=True)),
    Index("ix_inbox_tenant_event", "tenant_id", "event_type"),
    Index("ix_inbox_processed_at", "processed_at"),
)

inbox_attempt = Table(
    "inbox_attempt",
    metadata,
    Column("first_at", UtcTime, nullable=False, server_default=func.now()),
    Column("last_at", UtcTime, nullable=False, server_default=func.now()),
    # More started than finished: the process died over the message; alone says who is to blame.
    Column("started", Integer, nullable=False, server_default="0"),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("alone", SmallInteger, nullable=False, server_default="0"),
    Column("tenant_id", TENANT, primary_key=True),
    Column("consumer", IDENTIFIER, primary_key=True),
    Column("message_id", IDENTIFIER, primary_key=True),
    Column("error_class", String(100)),
    Column("error_message", Text),
)

inbox_parked = Table(
    "inbox_parked",
    metadata,
    Column("seq", BIG, nullable=False, server_default=NextNumber("inbox_parked_seq")),
    Column("first_at", UtcTime, nullable=False, server_default=func.now()),
    Column("last_at", UtcTime, nullable=False, server_default=func.now()),
    # A waiting message comes back by itself when it is due; a parked one needs a person.
    Column("due_at", UtcTime),
    Column("attempts", Integer, nullable=False, server_default="0"),
    # Later messages of the key queue behind this one.
    Column("holds_key", SmallInteger, nullable=False, server_default="0"),
    Column("tenant_id", TENANT, primary_key=True),
    Column("parked_id", EventIdType, primary_key=True),
    Column("state", String(8), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("consumer", IDENTIFIER, nullable=False),
    Column("message_id", IDENTIFIER, nullable=False),
    Column("topic", String(249), nullable=False),
    Column("key", IDENTIFIER),
    Column("event_type", String(255)),
    Column("source", String(255)),
    Column("error_class", String(100)),
    Column("error_message", Text),
    Column("position", Text),
    Column("headers", StoredJson, nullable=False, server_default="{}"),
    # What came otherwise than the columns say: else a message that is redriven would be another.
    Column("original", StoredJson(none_as_null=True)),
    Column("content_type", String(255)),
    Column("body", LargeBinary),
    CheckConstraint("state IN ('waiting', 'parked')", name="ck_inbox_parked_state"),
    Index("ix_inbox_parked_message", "tenant_id", "consumer", "message_id"),
    partial("ix_inbox_parked_key", "tenant_id", "consumer", "key", "seq", where="key IS NOT NULL"),
    partial("ix_inbox_parked_due", "consumer", "due_at", where="state = 'waiting'"),
)

inbox_task = Table(
    "inbox_task",
    metadata,
    Column("due_at", UtcTime, nullable=False, server_default=func.now()),
    Column("created_at", UtcTime, nullable=False, server_default=func.now()),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("tenant_id", TENANT, primary_key=True),
    Column("task_id", EventIdType, primary_key=True),
    Column("consumer", IDENTIFIER, nullable=False),
    Column("message_id", IDENTIFIER, nullable=False),
    Column("name", String(255), nullable=False),
    Column("arguments", StoredJson, nullable=False, server_default="{}"),
    Column("error_class", String(100)),
    Column("error_message", Text),
    Index("ix_inbox_task_due", "consumer", "due_at"),
)

# The highest version and number of an aggregate that took effect; written only by those who ask for it.
inbox_applied = Table(
    "inbox_applied",
    metadata,
    Column("version", BIG, nullable=False),
    Column("number", Integer, nullable=False),
    Column("tenant_id", TENANT, primary_key=True),
    Column("consumer", IDENTIFIER, primary_key=True),
    Column("source", IDENTIFIER, primary_key=True),
    Column("aggregate_type", IDENTIFIER, primary_key=True),
    Column("aggregate_id", IDENTIFIER, primary_key=True),
)
