"""Database addresses: one spelling for people, the right driver for each use."""

import asyncio
import sqlite3
from typing import Any, Final

from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pillarbox.errors import InvalidConfig

_POSTGRESQL: Final = frozenset({"postgresql", "postgres"})
_SETTING: Final = "database_url"
_EXTRAS: Final = {"asyncpg": "asyncpg", "aiosqlite": "sqlite"}
_REMEDY: Final = "use postgresql://user@host/name or sqlite:///file.db"
_BUSY_SECONDS: Final = 10.0
_PRIMARY_CODE: Final = 0xFF  # what is above says more of the same error


def sync_url(url: str | URL) -> URL:
    """Return the address with a driver for plain calls: psycopg 3 or sqlite3."""
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        return parsed.set(drivername="sqlite")
    return _for_psycopg(parsed)


def async_url(url: str | URL) -> URL:
    """Return the address with a driver for asyncio: psycopg 3, asyncpg if named, or aiosqlite."""
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        return parsed.set(drivername="sqlite+aiosqlite")
    if parsed.drivername == "postgresql+asyncpg":
        return parsed
    return _for_psycopg(parsed)


def make_engine(url: str | URL) -> AsyncEngine:
    """Make an engine for an address; on SQLite its transactions begin by taking the write lock.

    SQLite does not wait when a transaction that has read turns to writing while another has
    written: it fails at once. Beginning with the lock makes writers wait for one another.
    """
    chosen = async_url(url)
    try:
        engine = create_async_engine(chosen, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            _SETTING,
            f"needs {error.name}, which is not installed",
            f"pip install 'pillarbox[{_EXTRAS.get(error.name or '', 'dev')}]'",
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_immediate)
        event.listen(engine.sync_engine, "invalidate", _give_up_lock)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    del record
    connection.isolation_level = None  # SQLAlchemy begins, not the driver
    connection.execute(f"PRAGMA busy_timeout = {round(_BUSY_SECONDS * 1_000)}")
    _write_ahead(connection)


def _write_ahead(connection: Any) -> None:
    """Have a log written ahead; a file keeps that, so the first connection to it decides.

    The change waits for nobody: it fails at once beside a writer or a reader. Beginning waits for
    them, as long as any statement does; after that long in all the file is given up.
    """
    clock = asyncio.get_running_loop()
    latest = clock.time() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
            if code != sqlite3.SQLITE_BUSY or clock.time() >= latest:
                raise
            connection.run_async(_wait_for_others)
        else:
            return


async def _wait_for_others(driver: Any) -> None:
    # One call, so that whoever is cancelled here leaves no lock behind.
    await driver.executescript("BEGIN EXCLUSIVE; ROLLBACK")


def _give_up_lock(connection: Any, record: object, error: object) -> None:
    """Roll back before a connection is thrown away, because a call on it was cancelled.

    SQLite keeps a connection alive, and the write lock with it, as long as a cursor has rows that
    nobody has read: until that cursor is collected as garbage. The rollback is not waited for: it
    is queued before the close, and whoever is cancelled again must not leave out the close.
    """
    del record, error
    rolled_back = asyncio.ensure_future(connection.driver_connection.rollback())
    rolled_back.add_done_callback(lambda done: done.cancelled() or done.exception())


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def shown(url: URL) -> str:
    """Return the address for people and logs, without its password."""
    bare = url.set(drivername=url.get_backend_name(), query={})
    return bare.render_as_string(hide_password=True)


def _parsed(url: str | URL) -> URL:
    """Read an address; whatever is wrong with it, its password is not repeated."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidConfig(_SETTING, "is no database address", _REMEDY) from None
    backend, _, driver = parsed.drivername.partition("+")
    if "@" in (parsed.host or "") or "@" in (parsed.database or ""):
        # The parts beside the first @ may belong to the password and must not be shown.
        raise InvalidConfig(_SETTING, "has more than one @", "write an @ in the password as %40")
    if backend in _POSTGRESQL:
        return parsed.set(drivername=f"postgresql+{driver}" if driver else "postgresql")
    if backend == "sqlite":
        return parsed
    raise InvalidConfig(_SETTING, f"names the database {backend!r}, which is not served", _REMEDY)


def _for_psycopg(url: URL) -> URL:
    """Take psycopg 3, and say the options of asyncpg in its words."""
    query = dict(url.query)
    if url.drivername == "postgresql+asyncpg":
        query.pop("prepared_statement_cache_size", None)
        if "ssl" in query:
            query["sslmode"] = query.pop("ssl")
    return url.set(drivername="postgresql+psycopg", query=query)
