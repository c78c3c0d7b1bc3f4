"""The table of HTTP commands that are safe to repeat."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    func,
)

from pillarbox.schema.tables.columns import DIGEST, IDENTIFIER, TENANT, metadata
from pillarbox.schema.types import EventIdType, StoredJson, UtcTime

idempotency = Table(
    "idempotency",
    metadata,
    Column("created_at", UtcTime, nullable=False, server_default=func.now()),
    Column("expires_at", UtcTime, nullable=False),
    Column("lease_until", UtcTime),
    Column("status_code", Integer),
    Column("token", EventIdType),
    Column("tenant_id", TENANT, primary_key=True),
    Column("principal", IDENTIFIER, primary_key=True),
    Column("operation", IDENTIFIER, primary_key=True),
    Column("key_hash", DIGEST, primary_key=True),
    Column("fingerprint", DIGEST, nullable=False),
    Column("state", String(8), nullable=False),
    Column("headers", StoredJson(none_as_null=True)),
    Column("body", LargeBinary),
    CheckConstraint("state IN ('running', 'done')", name="ck_idempotency_state"),
    Index("ix_idempotency_principal", "tenant_id", "principal", "expires_at"),
    Index("ix_idempotency_expires_at", "expires_at"),
)
