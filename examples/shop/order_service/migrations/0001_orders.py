"""The outbox, the orders, and the view of them."""

import sqlalchemy as sa
from alembic import op

from examples.shop.common.walls import wall_off

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_outbox(3, tenancy=True)  # type: ignore[attr-defined] # a directive of the plugin
    op.create_table(
        "orders",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("items", sa.JSON, nullable=False),
        sa.Column("total_amount", sa.Numeric(12, 2), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    wall_off("orders")
    for table in ("order_view", "order_view_shadow"):  # a rebuild fills the second one
        op.create_table(
            table,
            sa.Column("tenant_id", sa.String(64), primary_key=True),
            sa.Column("order_id", sa.String(64), primary_key=True),
            sa.Column("user_id", sa.String(64), nullable=False),
            sa.Column("total_amount", sa.Numeric(12, 2), nullable=False),
            sa.Column("status", sa.String(16), nullable=False),
            sa.Column("reason", sa.String(200)),
        )
        wall_off(table, projected=True)
