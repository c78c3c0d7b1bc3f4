"""Create the outbox.

Revision ID: pillarbox_0001
Revises: -
"""

from pillarbox.migrations.run import downgrade_from, upgrade_to

revision = "pillarbox_0001"
down_revision = None
branch_labels = ("pillarbox",)
depends_on = None


def upgrade() -> None:
    """Create the tables, unless they are there."""
    upgrade_to(1)


def downgrade() -> None:
    """Drop the tables, unless an event in them was not sent."""
    downgrade_from(1)
