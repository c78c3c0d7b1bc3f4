"""What Alembic runs for every service of the shop; `migrate` gives it the connection."""

from alembic import context

given = context.config.attributes
context.configure(
    connection=given["connection"],
    target_metadata=given.get("tables"),
    # So that autogenerate and `alembic check` leave the tables of Pillarbox alone.
    autogenerate_plugins=["alembic.autogenerate.*", "pillarbox.autogenerate"],
)
context.run_migrations()
