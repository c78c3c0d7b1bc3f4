"""Who owns a transaction that units of work join: a session, or a bare connection."""

from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, NestedTransaction
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pillarbox.outbox.capture import HELD_TENANT, TENANT, capture_of
from pillarbox.outbox.wakeup import wakeup_of


class Owner(Protocol):
    """What a running transaction needs of its owner. The sync calls are made in a greenlet."""

    @property
    def engine(self) -> Engine | None:
        """The one database of the transaction."""

    @property
    def tenant_id(self) -> str | None:
        """The tenant that the transaction works for, if it has one."""

    def connection(self) -> Connection:
        """Return the connection of the transaction, which begins if it has not."""

    @property
    def restarts(self) -> bool:
        """Whether it can write its part again, into a new transaction."""

    def roll_back(self) -> None:
        """Make sure that nothing is left of a transaction that is to be restarted."""

    def restart(self, connection: Connection) -> None:
        """Write its part again, after a rollback that took it along."""

    async def write_what_waits(self) -> None:
        """Write rows and events of the owner's own, so that they come before the next ones."""

    def armed(self, transaction_id: str | None) -> None:
        """Hear that joined work waits for the commit."""


class SessionOwner:
    """A session that owns the transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    @property
    def engine(self) -> Engine | None:
        """The session's database."""
        return engine_of(self._session.sync_session)

    @property
    def tenant_id(self) -> str | None:
        """The tenant that the session has told the database, or was given."""
        info = self._session.info
        found: str | None = info.get(HELD_TENANT) or info.get(TENANT)
        return found

    def connection(self) -> Connection:
        """Return the session's connection."""
        return self._session.sync_session.connection()

    @property
    def restarts(self) -> bool:
        """A session's rows and objects cannot be written again."""
        return False

    def roll_back(self) -> None:
        """Never be called."""
        raise NotImplementedError

    def restart(self, connection: Connection) -> None:
        """Never be called."""
        raise NotImplementedError

    async def write_what_waits(self) -> None:
        """Flush the session and write its events, if its transaction has begun."""
        if not self._session.in_transaction():
            return
        capture = capture_of(self._session.sync_session)
        if capture is None:
            await self._session.flush()
        else:
            await self._session.run_sync(lambda _: capture.write_early())

    def armed(self, transaction_id: str | None) -> None:
        """Keep the transaction's id, for an owner whose COMMIT is lost."""
        capture = capture_of(self._session.sync_session)
        if capture is not None and transaction_id is not None:
            capture.transaction_id = transaction_id


class ConnectionOwner:
    """A bare connection that owns the transaction; a session would cost as much as a statement.

    `restart` writes the owner's part again when a unit of work has taken the transaction with it.
    All its calls are made in a greenlet.
    """

    restarts = True

    def __init__(self, engine: Engine, restart: Callable[[Connection], None]) -> None:
        self.engine: Engine = engine
        self.tenant_id: str | None = None
        self.restart = restart
        self._connection: Connection | None = None
        self._is_armed = False

    @property
    def is_open(self) -> bool:
        """Whether it holds a connection."""
        return self._connection is not None

    @property
    def driver(self) -> Any:
        """The driver's connection, where a COMMIT may wait for a standby; None elsewhere."""
        found = self._connection
        if found is None or found.invalidated or found.dialect.name != "postgresql":
            return None
        return found.connection.driver_connection

    def connection(self) -> Connection:
        """Return the connection of the transaction, begun: whoever joins must not begin it."""
        if self._connection is None:
            self._connection = self.engine.connect()
        if not self._connection.in_transaction():
            self._connection.begin()
        return self._connection

    def roll_back(self) -> None:
        """Roll back, if that has not been done: a session that is merely closed does not."""
        if self._connection is not None:
            self._connection.rollback()

    async def write_what_waits(self) -> None:
        """Do nothing: what such an owner writes is written at once."""

    def armed(self, transaction_id: str | None) -> None:
        """Note that there may be events to tell of."""
        del transaction_id
        self._is_armed = True

    def commit(self) -> None:
        """Commit, tell of the events, and give the connection back."""
        connection = self.connection()
        connection.commit()
        if self._is_armed:
            wakeup_of(connection).tell()  # what units of work told at their own commits was early
        self.close()

    def close(self) -> None:
        """Roll back what is not committed, and give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class SavepointOwner:
    """A savepoint in somebody else's transaction, which stands for a transaction: a test's.

    Units of work have savepoints inside it. `restart` writes the owner's part again when one that
    began before it was undone, and took it along.
    """

    restarts = False

    def __init__(self, connection: Connection, restart: Callable[[Connection], None]) -> None:
        self.engine: Engine = connection.engine
        self.tenant_id: str | None = None
        self.restart = restart
        self._connection = connection
        self._savepoint: NestedTransaction | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is something to end."""
        return self._savepoint is not None

    @property
    def driver(self) -> None:
        """None: nothing is committed."""

    def connection(self) -> Connection:
        """Return the connection, inside the savepoint."""
        if self._savepoint is None:
            self._savepoint = self._connection.begin_nested()
        return self._connection

    def roll_back(self) -> None:
        """Never be called."""
        raise NotImplementedError

    async def write_what_waits(self) -> None:
        """Do nothing: what such an owner writes is written at once."""

    def armed(self, transaction_id: str | None) -> None:
        """Do nothing: nobody else sees the transaction of a test."""

    def commit(self) -> None:
        """Keep what was done."""
        self.connection()
        savepoint, self._savepoint = self._savepoint, None
        if savepoint is not None:
            savepoint.commit()

    def close(self) -> None:
        """Undo what was not committed."""
        savepoint, self._savepoint = self._savepoint, None
        if savepoint is not None:
            savepoint.rollback()


CommandOwner = ConnectionOwner | SavepointOwner


def owner_of(bind: Engine | Connection, restart: Callable[[Connection], None]) -> CommandOwner:
    """Return the owner of a transaction on an engine, or of a part of one that is open."""
    if isinstance(bind, Engine):
        return ConnectionOwner(bind, restart)
    return SavepointOwner(bind, restart)


def engine_of(session: Session) -> Engine | None:
    """Return a session's engine; None for one that has an engine for each table only."""
    try:
        return session.get_bind().engine
    except UnboundExecutionError:
        return None


def is_same_database(one: Engine, other: Engine) -> bool:
    """Say whether two engines reach the same database as the same user."""
    if one.dialect is other.dialect:  # also a copy with other execution options
        return True
    if is_in_memory(one.url):
        return False  # each engine has a database in memory of its own
    return _address(one.url) == _address(other.url)


def is_in_memory(url: URL) -> bool:
    """Say whether a database is SQLite's and has no file."""
    is_file = bool(url.database) and url.database != ":memory:" and "mode=memory" not in str(url)
    return url.get_backend_name() == "sqlite" and not is_file


def _address(url: URL) -> tuple[object, ...]:
    return (
        url.get_backend_name(), url.username, url.host, url.port, url.database,
        tuple(sorted(url.query.items())),
    )  # fmt: skip
