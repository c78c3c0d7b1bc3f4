"""Create the inbox, the tables of consumers, and the answers of HTTP commands.

Revision ID: pillarbox_0002
Revises: pillarbox_0001
"""

from pillarbox.migrations.run import downgrade_from, upgrade_to

revision = "pillarbox_0002"
down_revision = "pillarbox_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, unless they are there."""
    upgrade_to(2)


def downgrade() -> None:
    """Drop the tables, unless a parked message or a task waits in them."""
    downgrade_from(2)
