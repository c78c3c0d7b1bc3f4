"""The inbox, what customers are told, and the mails that left the house."""

import sqlalchemy as sa
from alembic import op

from examples.shop.common.walls import wall_off

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_outbox(3, tenancy=True)  # type: ignore[attr-defined] # a directive of the plugin
    op.create_table(
        "notification",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("order_id", sa.String(64), nullable=False, index=True),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("order_version", sa.Integer, nullable=False),
    )
    op.create_table(
        "mail",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("recipient", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column(
            "sent_at",
            sa.DateTime(timezone=True),
            nullable=False,
            index=True,
            server_default=sa.func.now(),
        ),
    )
    wall_off("notification", "mail")
