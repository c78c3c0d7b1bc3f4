"""The tables of the outbox, as SQLAlchemy metadata.

Column order is not cosmetic: `txid` stands before `seq`, because PostgreSQL evaluates defaults in
column order and the projector relies on a row's transaction id being drawn before its number.
Wide fixed-size columns come first, so that a row holds no padding.
"""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    FromClause,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    literal_column,
    text,
)

from pillarbox.schema.tables.columns import (
    BIG,
    IDENTIFIER,
    NUMBERS,
    TENANT,
    TXID,
    metadata,
    partial,
)
from pillarbox.schema.types import EventIdType, NextNumber, StoredJson, TransactionId, UtcTime

DEFAULT_SHARDS = 64

# A row that nothing keeps from being sent: the only rows the claim index holds.
CLAIMABLE = "status = 'NEW' AND set_aside IS NULL"
SET_ASIDE = "set_aside IS NOT NULL"
TROUBLED = "status IN ('FAILED', 'DEAD')"
# PUBLISHING stands in the column only with claim="row"; the view finds it by this index.
UNSETTLED = "status IN ('PUBLISHING', 'FAILED', 'DEAD')"
# Every row; claims, which also go by number, do not say it and cannot be planned with its index.
LOGGED = "seq > 0"

outbox = Table(
    "outbox",
    metadata,
    Column("txid", TXID, server_default=TransactionId()),
    Column("seq", BIG, nullable=False, server_default=NextNumber("outbox_seq")),
    Column("occurred_at", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False, server_default=func.now()),
    Column("deliver_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("retry_after", UtcTime),
    Column("published_at", UtcTime),
    Column("aggregate_version", BIG),
    Column("event_number", Integer),
    Column("shard_hash", Integer, nullable=False),
    Column("schema_version", Integer, nullable=False, server_default="1"),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("id", EventIdType, nullable=False),
    Column("tenant_id", TENANT, nullable=False, server_default="default"),
    Column("status", String(10), nullable=False, server_default="NEW"),
    Column("set_aside", String(8)),
    Column("event_type", String(255), nullable=False),
    Column("topic", String(249), nullable=False),
    Column("key", IDENTIFIER, nullable=False),
    Column("aggregate_type", String(255)),
    Column("aggregate_id", String(255)),
    Column("routing_key", String(255)),
    Column("schema_id", String(255)),
    Column("error_class", String(100)),
    Column("error_message", Text),
    Column("event_metadata", StoredJson, nullable=False, server_default="{}"),
    Column("content_type", String(255), nullable=False, server_default="application/json"),
    Column("payload", StoredJson(none_as_null=True)),
    Column("payload_bytes", LargeBinary),
    PrimaryKeyConstraint("tenant_id", "id", name="pk_outbox"),
    CheckConstraint(
        "status IN ('NEW', 'PUBLISHING', 'SENT', 'FAILED', 'DEAD')", name="ck_outbox_status"
    ),
    CheckConstraint("set_aside IN ('key', 'later')", name="ck_outbox_set_aside"),
    CheckConstraint("payload IS NULL OR payload_bytes IS NULL", name="ck_outbox_one_payload"),
    partial("ix_outbox_claim", text("(shard_hash & 63)"), "tenant_id", "seq", where=CLAIMABLE),
    # The log in the order of its numbers, SENT rows included: read models follow it.
    partial("ix_outbox_seq", "seq", where=LOGGED),
    partial("ix_outbox_txid", "txid", where=CLAIMABLE),
    partial("ix_outbox_set_aside", "tenant_id", "key", "seq", where=SET_ASIDE),
    partial("ix_outbox_due", "deliver_at", where="set_aside = 'later'"),
    partial("ix_outbox_processing", "status", "retry_after", where="status = 'FAILED'"),
    partial("ix_tenant_id_status", "tenant_id", "status", where=UNSETTLED),
    partial("ix_outbox_topic", "topic", where=TROUBLED),
)


def in_the_log(rows: FromClause) -> ColumnElement[bool]:
    """Say what makes a statement on the outbox go by number; without it the index is not used."""
    return rows.c.seq > literal_column("0")


outbox_settings = Table(
    "outbox_settings",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False, server_default="1"),
    Column("schema_version", Integer, nullable=False),
    Column("shard_count", Integer, nullable=False, server_default=str(DEFAULT_SHARDS)),
    Column("shard_hash", String(32), nullable=False, server_default="sha256-16"),
    Column("layout", String(11), nullable=False, server_default="plain"),
    # Numbers the rows where a composite primary key leaves no room for a sequence (SQLite).
    Column("last_seq", BIG, nullable=False, server_default="0"),
    CheckConstraint("id = 1", name="ck_outbox_settings_one_row"),
    CheckConstraint(
        "shard_count BETWEEN 1 AND 1024 AND (shard_count & (shard_count - 1)) = 0",
        name="ck_outbox_settings_shard_count",
    ),
    CheckConstraint("layout IN ('plain', 'partitioned')", name="ck_outbox_settings_layout"),
)

outbox_member = Table(
    "outbox_member",
    metadata,
    Column("member_id", EventIdType, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("service", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("process_id", Integer, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", UtcTime, nullable=False, server_default=func.now()),
    Column("seen_at", UtcTime, nullable=False, server_default=func.now()),
)

outbox_lease = Table(
    "outbox_lease",
    metadata,
    Column("scope", String(255), primary_key=True),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("member_id", EventIdType),
    Column("epoch", BIG, nullable=False, server_default="0"),
    Column("expires_at", UtcTime),
)

outbox_claim = Table(
    "outbox_claim",
    metadata,
    Column("claim_id", EventIdType, primary_key=True),
    Column("member_id", EventIdType, nullable=False),
    Column("claimed_at", UtcTime, nullable=False, server_default=func.now()),
    Column("scope", String(255), nullable=False),
    Column("shards", NUMBERS, nullable=False),
    Column("epochs", NUMBERS, nullable=False),
    Column("seqs", NUMBERS, nullable=False),
)

outbox_claim_end = Table(
    "outbox_claim_end",
    metadata,
    Column("claim_id", EventIdType, primary_key=True),
    Column("ended_at", UtcTime, nullable=False, server_default=func.now()),
)

outbox_blocked_key = Table(
    "outbox_blocked_key",
    metadata,
    Column("tenant_id", TENANT, primary_key=True),
    Column("key", IDENTIFIER, primary_key=True),
    Column("event_id", EventIdType, nullable=False),
    # Events of the key up to this number may pass: the blocking one itself when it is tried again.
    Column("seq", BIG, nullable=False),
    Column("blocked_at", UtcTime, nullable=False, server_default=func.now()),
    # The key waits for this topic: paused, or not to be had.
    Column("topic", String(249)),
    partial("ix_outbox_blocked_key_topic", "topic", "blocked_at", where="topic IS NOT NULL"),
)

outbox_control = Table(
    "outbox_control",
    metadata,
    Column("tenant_id", TENANT, primary_key=True),
    Column("topic", String(249), primary_key=True),
    Column("paused", SmallInteger, nullable=False, server_default="0"),
    Column("events_per_second", Integer),
    Column("changed_at", UtcTime, nullable=False, server_default=func.now()),
)

pillarbox_audit = Table(
    "pillarbox_audit",
    metadata,
    Column("tenant_id", TENANT, primary_key=True),
    Column("audit_id", EventIdType, primary_key=True),
    Column("at", UtcTime, nullable=False, server_default=func.now()),
    Column("actor", String(255), nullable=False),
    Column("action", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    Column("subject", StoredJson, nullable=False),
    Column("affected", BIG, nullable=False),
)
