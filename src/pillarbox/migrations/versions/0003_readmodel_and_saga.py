"""Create what is built on delivered events: read models and sagas.

Revision ID: pillarbox_0003
Revises: pillarbox_0002
"""

from pillarbox.migrations.run import downgrade_from, upgrade_to

revision = "pillarbox_0003"
down_revision = "pillarbox_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, unless they are there."""
    upgrade_to(3)


def downgrade() -> None:
    """Drop the tables, unless a saga in them has not ended."""
    downgrade_from(3)
