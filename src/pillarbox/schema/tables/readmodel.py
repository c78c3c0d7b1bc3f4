"""The tables of read models: how far each is, what overwrote its rows, what is held, who runs it."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    func,
)

from pillarbox.schema.tables.columns import BIG, IDENTIFIER, TENANT, metadata
from pillarbox.schema.types import EventIdType, StoredJson, UtcTime

# One row for each generation of a model: the live one, and the one that a rebuild fills.
readmodel = Table(
    "readmodel",
    metadata,
    Column("position", BIG, nullable=False, server_default="0"),
    # Numbers below the position whose transactions were open when they were passed.
    Column("gaps", StoredJson, nullable=False, server_default="[]"),
    Column("first_position", BIG),
    Column("target", BIG),
    Column("events", BIG, nullable=False, server_default="0"),
    Column("started_at", UtcTime, nullable=False, server_default=func.now()),
    Column("moved_at", UtcTime, nullable=False, server_default=func.now()),
    Column("name", IDENTIFIER, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("paused", SmallInteger, nullable=False, server_default="0"),
    Column("source", String(8), nullable=False),
    Column("state", String(8), nullable=False),
    # Rows of the last batches whose cached copies may not have been removed yet.
    Column("touched", StoredJson, nullable=False, server_default="[]"),
    CheckConstraint("source IN ('log', 'bus')", name="ck_readmodel_source"),
    CheckConstraint("state IN ('live', 'filling')", name="ck_readmodel_state"),
    # One generation is live, and one at most is being filled.
    Index("ix_readmodel_state", "name", "state", unique=True),
)

# The newest event of an aggregate that wrote its row; it outlives the row.
readmodel_applied = Table(
    "readmodel_applied",
    metadata,
    Column("version", BIG, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("tenant_id", TENANT, nullable=False),
    Column("name", IDENTIFIER, nullable=False),
    Column("aggregate_type", IDENTIFIER, nullable=False),
    Column("aggregate_id", IDENTIFIER, nullable=False),
    PrimaryKeyConstraint("tenant_id", "name", "generation", "aggregate_type", "aggregate_id"),
)

# A key whose event could not be applied: it waits with what follows it, and holds up nobody else.
readmodel_held = Table(
    "readmodel_held",
    metadata,
    Column("seq", BIG, nullable=False),
    Column("held_at", UtcTime, nullable=False, server_default=func.now()),
    Column("due_at", UtcTime, nullable=False, server_default=func.now()),
    Column("generation", Integer, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="1"),
    Column("event_id", EventIdType, nullable=False),
    Column("tenant_id", TENANT, nullable=False),
    Column("name", IDENTIFIER, nullable=False),
    Column("key", IDENTIFIER, nullable=False),
    Column("error_class", String(100), nullable=False),
    Column("error_message", Text, nullable=False),
    PrimaryKeyConstraint("tenant_id", "name", "generation", "key"),
)

# What a process that runs a subscribed model has told last; see `pillarbox.readmodel.lag`.
readmodel_member = Table(
    "readmodel_member",
    metadata,
    Column("waiting", BIG),
    Column("told_at", UtcTime, nullable=False, server_default=func.now()),
    Column("good_until", UtcTime, nullable=False),
    Column("oldest_at", UtcTime),
    Column("fresh_at", UtcTime),
    Column("generation", Integer, nullable=False),
    Column("in_hand", Integer, nullable=False),
    Column("at_end", SmallInteger),
    Column("name", IDENTIFIER, nullable=False),
    Column("member", IDENTIFIER, nullable=False),
    PrimaryKeyConstraint("name", "generation", "member"),
)
