"""The outbox and the payments."""

import sqlalchemy as sa
from alembic import op

from examples.shop.common.walls import wall_off

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_outbox(3, tenancy=True)  # type: ignore[attr-defined] # a directive of the plugin
    op.create_table(
        "payment",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("order_id", sa.String(64), nullable=False, index=True),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("amount", sa.Numeric(12, 2), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("message_id", sa.String(255), nullable=False),
    )
    wall_off("payment")
