"""Where the projector's own connections come from."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import make_conninfo
from psycopg.types.string import ByteaBinaryLoader
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.database import sync_url
from pillarbox.errors import InvalidConfig
from pillarbox.projector.postgres.eager import EagerConnection
from pillarbox.projector.postgres.line import Connect, Connection

_APPLICATION: Final = "pillarbox-projector"
# The statements are written so that one plan serves all parameters; planning them anew would cost
# more than running them.
_SESSION: Final = (
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', false), "
    "set_config('jit', 'off', false), "
    # A plan that is made while the table is empty would read or sort all of it when it is not.
    "set_config('enable_seqscan', 'off', false), "
    "set_config('enable_sort', 'off', false), "
    "set_config('enable_incremental_sort', 'off', false), "
    # On a table of millions the planner would start workers for a few rows, for 5 ms each time.
    "set_config('max_parallel_workers_per_gather', '0', false), "
    # Whoever waited for a lock must see what was committed meanwhile, whatever the database's default.
    "set_config('default_transaction_isolation', 'read committed', false), "
    # Times come as UTC, which is quicker to read and to write than a named zone.
    "set_config('TimeZone', 'UTC', false)"
)


def connect_to(dsn: str | URL) -> Connect:
    """Make a function that opens connections to an address."""
    conninfo = _conninfo(dsn)

    async def connect() -> Connection:
        return await _prepared(
            EagerConnection.connect(conninfo, autocommit=True, application_name=_APPLICATION)
        )

    return connect


def dsn_of(engine: AsyncEngine) -> URL:
    """Return the address of an engine, if it says everything that is needed to connect."""
    creator = getattr(engine.sync_engine.pool, "_creator", None)
    if getattr(creator, "__module__", "").partition(".")[0] != "sqlalchemy":
        raise _insufficient("its engine opens connections by a function of its own")
    known = engine.dialect.create_connect_args(engine.url)[1]
    for cell in getattr(creator, "__closure__", None) or ():
        if isinstance(cell.cell_contents, dict) and (more := set(cell.cell_contents) - set(known)):
            raise _insufficient(f"its engine has connect_args ({', '.join(sorted(more))})")
    return engine.url


def _insufficient(reason: str) -> InvalidConfig:
    return InvalidConfig(
        "session_factory",
        f"does not say how to connect: {reason}",
        "pass dsn= or connect= for the projector's own connections",
    )


def connect_by(function: Callable[[], Awaitable[AsyncConnection[Any]]]) -> Connect:
    """Use connections that a function of the user's opens."""

    async def connect() -> Connection:
        return await _prepared(function())

    return connect


async def _prepared(opening: Awaitable[Connection]) -> Connection:
    """Make a connection ready; one that cannot be, or is not wanted any more, is closed."""
    connection = await opening
    try:
        await _prepare(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


async def _prepare(connection: Connection) -> None:
    """Set the session up; through a pooler nothing may stay behind in it."""
    if not connection.autocommit:
        await connection.set_autocommit(True)
    # Said in each BEGIN, so that it holds through a pooler, too, for transactions. A statement by itself
    # has the database's default there.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    # JSON goes on as it is stored: it stays bytes, neither decoded nor parsed.
    connection.adapters.register_loader("json", ByteaBinaryLoader)
    connection.prepare_threshold = None
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    if row is not None and row[0] == connection.info.backend_pid:
        connection.prepare_threshold = 0
        await connection.execute(_SESSION)


def is_pooled(connection: Connection) -> bool:
    """Tell whether a pooler stands between: it gives another process id than the server."""
    return connection.prepare_threshold is None


def _conninfo(dsn: str | URL) -> str:
    """Turn an address of any spelling into libpq's."""
    if isinstance(dsn, str) and "://" not in dsn:
        return dsn
    url = sync_url(dsn)
    if url.get_backend_name() != "postgresql":
        raise InvalidConfig("dsn", "is no PostgreSQL", "pass session_factory= for other databases")
    parts: dict[str, Any] = {
        "host": url.host,
        "port": url.port,
        "user": url.username,
        "password": url.password,
        "dbname": url.database,
        **{name: ",".join(_listed(value)) for name, value in url.query.items()},
    }
    try:
        given = {name: part for name, part in parts.items() if part is not None}
        return make_conninfo("", **given)
    except psycopg.ProgrammingError:
        raise InvalidConfig("dsn", "cannot be read", "write postgresql://user@host/name") from None


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
