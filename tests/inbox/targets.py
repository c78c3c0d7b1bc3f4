"""The things that an inbox works on, in turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from tests.support.database import Database

Target = AsyncSession | AsyncConnection
TARGETS = ("session", "connection")


@asynccontextmanager
async def opened(database: Database, kind: str) -> AsyncIterator[Target]:
    """Open a session or a connection; what is not committed is rolled back."""
    if kind == "session":
        async with database.sessions() as session:
            yield session
    else:
        async with database.engine.connect() as connection:
            yield connection


async def stored(database: Database) -> list[str]:
    """Return the ids that were committed, in their order."""
    async with database.engine.connect() as connection:
        rows = await connection.exec_driver_sql("SELECT message_id FROM inbox ORDER BY 1")
        return [row[0] for row in rows]


async def waits_for_a_lock(database: Database) -> bool:
    """Say whether someone on this database waits for another transaction."""
    found = await database.scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    return bool(found)
