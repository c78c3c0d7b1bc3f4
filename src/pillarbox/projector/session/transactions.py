"""Transactions of a session factory: one at a time, run to their end, judged by one clock."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, false, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from pillarbox.outbox.capture import SETTINGS
from pillarbox.projector.store import StoreUnavailable
from pillarbox.schema.types import UtcTime

T = TypeVar("T")
# What a transaction wrote must be there after a crash, whatever its session says.
_DURABLE: Final = text("SELECT set_config('synchronous_commit', 'on', true)")
# A process that freezes inside it must not hold its locks for ever: the server ends the session.
_DURABLE_AND_BOUNDED: Final = text(
    "SELECT set_config('synchronous_commit', 'on', true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true)"
)


class DatabaseTime(FunctionElement[datetime]):
    """The time of the database, which alone judges leases; of this statement, not its transaction.

    SQLite's CURRENT_TIMESTAMP has whole seconds. This has milliseconds, in the form in which
    SQLAlchemy stores times there, so that both compare as text.
    """

    inherit_cache = True
    type = UtcTime()


@compiles(DatabaseTime)
def _statement_time(element: DatabaseTime, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "clock_timestamp()"


@compiles(DatabaseTime, "sqlite")
def _sqlite_time(element: DatabaseTime, compiler: SQLCompiler, **kw: Any) -> str:
    del element, compiler, kw
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


def time_of(connection: Connection) -> datetime:
    """Ask the database for the time."""
    return connection.execute(select(DatabaseTime())).scalar_one()


class Transactions:
    """Run a body in a transaction of a session of its own.

    The tasks of a projector call at the same time, and there may be one connection only, so they
    wait for one another. A body that has begun is finished when its caller is cancelled: SQLAlchemy
    throws a connection away that a statement was cancelled on, and with it the outer transaction
    of a test, or a database in memory.
    """

    def __init__(
        self, factory: async_sessionmaker[AsyncSession], lease: Table, limit: float
    ) -> None:
        bind = factory.kw.get("bind")
        engine = bind if isinstance(bind, AsyncEngine) else None
        self._factory, self._lease, self._limit = factory, lease, limit
        self._alone = asyncio.Lock()
        # A fence must see what was committed while it waited; a bound connection is as it is.
        self._is_own = engine is not None and engine.dialect.name == "postgresql"
        self._options = {"isolation_level": "READ COMMITTED"} if self._is_own else {}

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that only reads."""
        return await self._run(body)

    async def write(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes, and commit it durably; an exception rolls it back."""

        def prepared(connection: Connection) -> T:
            if self._is_own:
                connection.execute(_DURABLE_AND_BOUNDED, {"idle": str(round(self._limit * 1_000))})
            elif connection.dialect.name == "postgresql":
                connection.execute(_DURABLE)  # the transaction is a test's, and may rest
            else:
                # SQLite does not wait when a reader turns writer: take the write lock first.
                connection.execute(update(self._lease).where(false()).values(epoch=0))
            return body(connection)

        return await self._run(prepared)

    async def _run(self, body: Callable[[Connection], T]) -> T:
        try:
            async with self._alone:
                return await to_the_end(self._transact(body))
        except (DBAPIError, NoFreeConnection, OSError, TimeoutError) as error:
            raise StoreUnavailable(error) from error

    async def _transact(self, body: Callable[[Connection], T]) -> T:
        async with asyncio.timeout(self._limit), self._factory() as session:
            # A projector serves every tenant: the wall around its users' sessions is not for it.
            session.info.pop(SETTINGS, None)
            async with session.begin():
                connection = await session.connection(execution_options=self._options)
                return await connection.run_sync(body)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that has its own time limit, and after a cancellation until it has ended."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if not cancelled:
        return task.result()
    if not task.cancelled():
        task.exception()  # whoever asked is gone; the rows tell the next one what became of it
    raise asyncio.CancelledError
