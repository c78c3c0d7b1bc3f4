"""The consumer's transactions, each for one tenant; and which errors are the database's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, Final

from sqlalchemy import Table, event, false, update
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from pillarbox.consumer.fate import Fate
from pillarbox.errors import UnitOfWorkError
from pillarbox.event.context import tenant
from pillarbox.outbox.capture import SETTINGS, TENANT
from pillarbox.schema.tables import outbox_settings, table_in
from pillarbox.tenancy import DEFAULT_TENANT
from pillarbox.uow.committing import commit
from pillarbox.words import words_of

SessionFactory = async_sessionmaker[AsyncSession] | Callable[[], AsyncSession]

# Lost connections, shutdown, no resources, a disk that fails, a standby, conflicts with others; a
# transaction that the server ended since it was idle, or open, for too long.
_AWAY: Final = ("08", "57P", "53", "58", "25006", "25P03", "25P04", "40001", "40P01", "55P03")
# Not among them, since it may be a handler's statement that takes too long.
_CANCELLED: Final = "57014"
# What a driver raises by itself over a value or a call, before it asks the server.
_OF_THE_STATEMENT: Final[tuple[type[DatabaseError], ...]] = (
    DataError, IntegrityError, NotSupportedError, ProgrammingError,
)  # fmt: skip
_AWAY_SQLITE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN",
                       "SQLITE_FULL", "SQLITE_PROTOCOL")  # fmt: skip

CLOCK: Final = "pillarbox.consumer_clock"
_OWNED: Final = "pillarbox.consumer_owns"
_NOT_YOURS: Final = (
    "a handler ended the consumer's transaction, which also holds the inbox's rows; leave commit "
    "and rollback of ctx.session to the consumer, or use a savepoint"
)


class DatabaseAway(Exception):
    """The database did not do what was asked, by no fault of a message; nothing counts as a try."""

    def __init__(self, cause: BaseException) -> None:
        first = words_of(cause).partition("\n")[0]
        super().__init__(f"{type(cause).__name__}: {first}")


def is_away(error: BaseException) -> bool:
    """Tell an error of the database itself from one that a statement brought upon itself."""
    if isinstance(error, OSError | NoFreeConnection | InterfaceError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = _state_of(error)
    if isinstance(state, str):
        return state.startswith(_AWAY)
    if isinstance(getattr(error.orig, "sqlite_errorname", None), str):
        return _is_away_sqlite(error)
    is_its_own = isinstance(error, _OF_THE_STATEMENT) or _has_words_of_sqlite(error.orig)
    return error.connection_invalidated or not is_its_own


def is_away_under(connection: AsyncConnection, fate: Fate) -> bool:
    """Tell whether what came out of code of the user is the database's doing, not the code's.

    Where the connection is lost, whatever was raised came of that, unless the code had given up its
    own statement. While it is there, what is away or late is the code's own, whatever its error says:
    it may be another database's. If it is ours that cannot write, the next statement meets it too,
    which writes down what happened, and that one is ours.
    """
    return connection.invalidated and not fate.given_up


def _is_cancelled(error: BaseException) -> bool:
    """Tell whether the server ended a statement: it ran out of its time, or somebody cancelled it."""
    return isinstance(error, DBAPIError) and _state_of(error) == _CANCELLED


def _state_of(error: DBAPIError) -> object:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _is_away_sqlite(error: DBAPIError) -> bool:
    name = getattr(error.orig, "sqlite_errorname", None)
    return isinstance(name, str) and name.startswith(_AWAY_SQLITE)


def _has_words_of_sqlite(original: BaseException | None) -> bool:
    return type(original).__module__.partition(".")[0] in ("sqlite3", "aiosqlite")


class Transactions:
    """Open transactions on the service's database, as its own sessions do.

    SQLite has one writer: there the transactions of a process take turns, instead of waiting for
    one another until the driver gives up. So they do on one connection, that of a test.

    `limit` is how many seconds one may take, but for handlers: a connection that has gone silent
    is waited for no longer, and given up.
    """

    def __init__(
        self, factory: SessionFactory, schema: str | None = None, *, limit: float | None = None
    ) -> None:
        self._factory, self.schema, self._limit = factory, schema, limit
        bind = factory.kw.get("bind") if isinstance(factory, async_sessionmaker) else None
        self._is_engine = isinstance(bind, AsyncEngine)
        self._is_connection = isinstance(bind, AsyncConnection)
        self._turn = asyncio.Lock()

    def table(self, table: Table) -> Table:
        """Return a table as it stands in the schema."""
        return table_in(table, self.schema)

    @asynccontextmanager
    async def begin(self, tenant_id: str | None) -> AsyncIterator[AsyncSession]:
        """Run a block in a transaction of a tenant, and commit it; an exception rolls it back.

        Without a tenant it sees what the database shows to a session that names none.

        Raise `DatabaseAway` for what the database does by itself. Whether the transaction took
        effect is not known then: the inbox tells whoever does it again.
        """
        session = self._factory()
        try:
            async with self._in_turn(session), _limited(session, self._limit), session:
                with _inside(session, tenant_id):
                    async with session.begin() as transaction:
                        await self._prepare(session)
                        session.info[_OWNED] = True
                        yield session
                        _refuse_ended(transaction.is_active)
                        session.info[_OWNED] = False
                        await commit(session)
        except Exception as error:
            # A handler's own errors end in its savepoint, or are wrapped: this is a statement of ours.
            if is_away(error) or _is_cancelled(error):
                raise DatabaseAway(error) from error
            raise

    def alone(self) -> AbstractAsyncContextManager[Any]:
        """Keep transactions away from code of the user's where there is one connection for all."""
        return self._turn if self._is_connection else nullcontext()

    def is_walled(self) -> bool:
        """Tell whether sessions see one tenant alone."""
        session = self._factory()
        return _is_walled(session)

    def _in_turn(self, session: AsyncSession) -> AbstractAsyncContextManager[Any]:
        alone = self._is_connection or _dialect(session) == "sqlite"
        return self._turn if alone else nullcontext()

    async def _prepare(self, session: AsyncSession) -> None:
        if _dialect(session) == "sqlite":
            # SQLite does not wait when a reader turns writer: take the write lock first.
            table = self.table(outbox_settings)
            await session.execute(update(table).where(false()).values(id=1))
        elif self._is_engine:
            # What another process has committed while this one waited for it must be seen.
            await session.connection(execution_options={"isolation_level": "READ COMMITTED"})


@asynccontextmanager
async def _limited(session: AsyncSession, seconds: float | None) -> AsyncIterator[None]:
    async with asyncio.timeout(seconds) as clock:
        session.info[CLOCK] = (clock, seconds)
        yield


@contextmanager
def untimed(session: AsyncSession) -> Iterator[None]:
    """Stop the clock of a transaction while a handler works, whose time is its own."""
    clock, seconds = session.info.get(CLOCK, (None, None))
    if clock is None or seconds is None:
        yield
        return
    clock.reschedule(None)
    try:
        yield
    finally:
        clock.reschedule(asyncio.get_running_loop().time() + seconds)


def _inside(session: AsyncSession, tenant_id: str | None) -> AbstractContextManager[None]:
    """Put a session into a tenant; behind the wall, also what the handler opens beside it."""
    session.info.pop(TENANT, None)  # a factory may hand out a session that served before
    if tenant_id is None:
        session.info.pop(SETTINGS, None)
        return nullcontext()
    if tenant_id != DEFAULT_TENANT:
        session.info[TENANT] = tenant_id
    return tenant(tenant_id) if _is_walled(session) else nullcontext()


def _is_walled(session: AsyncSession) -> bool:
    settings = session.info.get(SETTINGS)
    return settings is not None and settings.tenancy.required


@event.listens_for(Session, "before_commit")
def _refuse_commit(session: Session) -> None:
    """Keep a handler from committing claims whose messages are not handled yet."""
    if session.info.get(_OWNED) and not session.in_nested_transaction():
        raise UnitOfWorkError(_NOT_YOURS)


def _refuse_ended(active: bool) -> None:
    if not active:
        raise UnitOfWorkError(_NOT_YOURS)


def _dialect(session: AsyncSession) -> str:
    return session.sync_session.get_bind().dialect.name
