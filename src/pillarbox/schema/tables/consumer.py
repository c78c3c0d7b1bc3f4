"""The table of a consumer's tenants."""

from sqlalchemy import CheckConstraint, Column, String, Table

from pillarbox.schema.tables.columns import IDENTIFIER, TENANT, metadata

# Who has rows that the consumer must look at by itself: a session behind the wall cannot find out.
consumer_tenant = Table(
    "consumer_tenant",
    metadata,
    Column("tenant_id", TENANT, primary_key=True),
    Column("consumer", IDENTIFIER, primary_key=True),
    Column("kind", String(8), primary_key=True),
    CheckConstraint("kind IN ('aside', 'records')", name="ck_consumer_tenant_kind"),
)
