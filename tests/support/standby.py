"""A synchronous standby that does not come: commits wait for it, but for those that are local."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import text

from tests.support.database import Database
from tests.support.waiting import until

CAREFUL: Final[dict[str, dict[str, Any]]] = {
    "psycopg": {"options": "-c synchronous_commit=on"},
    "asyncpg": {"server_settings": {"synchronous_commit": "on"}},
}
"""Connection arguments of each driver with which commits wait."""
_SETTINGS: Final = {"synchronous_commit": "local", "synchronous_standby_names": "nobody"}


@asynccontextmanager
async def absent_standby(database: Database) -> AsyncIterator[None]:
    await _configure(
        database, [f"ALTER SYSTEM SET {name} = '{_SETTINGS[name]}'" for name in _SETTINGS]
    )
    try:
        await until(lambda: is_wanted(database, "nobody"), "the standby is wanted")
        yield
    finally:
        await _configure(database, [f"ALTER SYSTEM RESET {name}" for name in _SETTINGS])
        await until(lambda: is_wanted(database, ""), "no standby is wanted")


async def _configure(database: Database, statements: list[str]) -> None:
    async with database.engine.connect() as connection:
        outside = await connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in (*statements, "SELECT pg_reload_conf()"):
            await outside.execute(text(statement))


async def is_wanted(database: Database, standby: str) -> bool:
    return bool(await database.scalar("SHOW synchronous_standby_names") == standby)


async def a_commit_waits(database: Database) -> bool:
    found = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(await database.scalar(found) == 1)
