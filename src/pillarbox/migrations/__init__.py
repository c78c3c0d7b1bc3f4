"""The schema as Alembic migrations, branch `pillarbox`."""
