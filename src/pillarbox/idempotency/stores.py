"""Choose the store that suits a database."""

from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.errors import InvalidConfig
from pillarbox.idempotency.postgres import PostgresCommands
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.sqlite import SqliteCommands
from pillarbox.idempotency.store import CommandStore


def store_for(
    dialect: str,
    settings: IdempotencySettings,
    *,
    schema: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> CommandStore:
    """Make the store for a database, by the name of its dialect."""
    match dialect:
        case "postgresql":
            return PostgresCommands(settings, schema=schema, clock=clock)
        case "sqlite":
            return SqliteCommands(settings, schema=schema, clock=clock)
        case _:
            raise InvalidConfig(
                "database", f"is {dialect}, which is not served", "use PostgreSQL or SQLite"
            )
