"""The outbox, the stock, and what is reserved of it."""

import sqlalchemy as sa
from alembic import op

from examples.shop.common.walls import wall_off

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_outbox(3, tenancy=True)  # type: ignore[attr-defined] # a directive of the plugin
    op.create_table(
        "stock",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("product_id", sa.String(64), primary_key=True),
        sa.Column("available", sa.Integer, nullable=False),
        sa.CheckConstraint("available >= 0", name="stock_is_never_oversold"),
    )
    op.create_table(
        "reservation",
        sa.Column("tenant_id", sa.String(64), primary_key=True),
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("order_id", sa.String(64), nullable=False, index=True),
        sa.Column("product_id", sa.String(64), nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
    )
    wall_off("stock", "reservation")
