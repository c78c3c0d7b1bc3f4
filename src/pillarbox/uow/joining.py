"""Let units of work join a transaction that somebody else owns.

The consumer runtime and the idempotent route own a transaction: the inbox's claim or the key's row
stands in it, and must commit together with what the handler does. An owner opens it so:

    async with session_factory() as session:
        async with joined_transaction(session):
            await handler(…)
        await session.commit()

Inside the block every `SQLAlchemyUnitOfWork` of the same database, wherever the handler makes it,
has a session of its own, with the options of its own factory, on the owner's connection, in a
savepoint that begins with its first statement:

- `commit()` collects the events, flushes and releases the savepoint: the unit of work is *armed*.
  The owner's commit makes it durable, and tells the projectors.
- `rollback()`, or leaving the block without a commit, undoes this unit of work alone. What the
  owner and units of work before it did stays.
- An exception undoes the unit of work and goes on to the owner, which decides: usually it rolls
  back everything; if the handler caught the exception, the rest commits.
- A second commit is refused as ever: `NoActiveUnitOfWork`.
- Units of work one after the other are armed one after the other. One inside another is armed into
  it: they end in the order in which a stack ends, and another order raises `UnitOfWorkError`. If
  the outer one is undone after the inner one was armed, the inner one's work is gone too; then the
  end of the block raises `UnitOfWorkError`, so that the owner does not commit a part.
- A unit of work that is still open when the block ends is rolled back, and says so when it is used.
- One that has only read leaves no trace when it ends, also around others that were armed.
- On another database, or as another user, it raises `NotJoinable`, because no transaction would
  hold both; `independent=True` gives it a transaction of its own, here and there.

The block neither commits nor rolls back the owner's session. An exception passes through it.

A savepoint costs two round trips. A `ConnectionOwner` has written nothing but what it can write
again. The first unit of work then works without a savepoint; if it is undone, the whole transaction
is, and `restart` writes the owner's part into a new one before anything else is done.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.util import greenlet_spawn

from pillarbox.database import shown
from pillarbox.errors import TenantMismatch, UnitOfWorkError
from pillarbox.outbox.capture import TENANT, capture_of
from pillarbox.outbox.wakeup import wakeup_of
from pillarbox.uow.owner import Owner, SessionOwner, engine_of, is_same_database

_JOINED: Final = "pillarbox.joined"
_OWNS: Final = "pillarbox.owns"
_ENDED: Final = "the transaction that this session joined has ended; make a new session"


class NotJoinable(UnitOfWorkError):
    """A unit of work inside a running transaction belongs to another database."""

    code = "not-joinable"

    def __init__(self, found: str, running: str) -> None:
        super().__init__(
            f"this unit of work is on {found}, and the transaction it is opened in is on "
            f"{running}, so that one could commit without the other; use the same database, or "
            "pass independent=True and make the work safe to repeat"
        )
        self.found, self.running = found, running


@dataclass(slots=True, eq=False)
class RunningTransaction:
    """A transaction that units of work join; `joined_transaction` makes it."""

    owner: Owner
    armed: int = 0
    """How many commits of joined sessions wait for the owner's."""
    asks_at_end: bool = True
    is_open: bool = True
    _begun: list["_Joined"] = field(default_factory=list)
    _undone: bool = False
    _lost: bool = False

    async def join(self, session: AsyncSession) -> None:
        """Put a session that has not begun into this transaction; `leave` takes it out again.

        The owner's transaction begins when it or a joined session first needs it.
        """
        joined = _Joined(self, session)
        joined.check()
        await self.owner.write_what_waits()
        joined.enter()

    async def end(self) -> None:
        """Roll back what is still open; refuse to go on when armed work was undone."""
        await self._roll_back()
        if self._undone:
            raise UnitOfWorkError(
                "a unit of work was rolled back after another one inside it had been committed, so "
                "both are undone; nothing may be committed, end the inner ones after the outer one "
                "or open them with independent=True"
            )
        if self._lost:
            await greenlet_spawn(self.connection)
        if self.armed and self.asks_at_end:
            # PostgreSQL answers the COMMIT of an aborted transaction with a rollback and no error.
            await greenlet_spawn(lambda: self.connection().execute(text("SELECT 1")))

    async def abandon(self) -> None:
        """Roll back what is still open while an exception passes."""
        # The owner rolls back all the same, and the exception that passes says what went wrong.
        with suppress(DBAPIError, OSError):
            await self._roll_back()

    async def _roll_back(self) -> None:
        while self._begun:
            session = self._begun[-1].session
            if not await let_go(session):
                await session.rollback()

    def connection(self) -> Connection:
        """Return the owner's connection, with the owner's part in its transaction."""
        connection = self.owner.connection()
        if self._lost:
            self.owner.restart(connection)
            self._lost = False
        return connection

    def needs_savepoint(self) -> bool:
        """Say whether there is anything that must stay when a unit of work is undone."""
        return not self.owner.restarts or bool(self._begun) or self.armed > 0

    def begin(self, joined: "_Joined") -> None:
        """Note that a joined session has begun its part."""
        self._begun.append(joined)
        joined.has_begun, joined.armed_before = True, self.armed

    def is_innermost(self, joined: "_Joined") -> bool:
        """Say whether a session that has begun is the last that did."""
        return self._begun[-1] is joined

    def check_innermost(self, joined: "_Joined") -> None:
        """Refuse to end a savepoint around another one that is open."""
        if not self.is_open:
            raise UnitOfWorkError(_ENDED)
        if joined.has_begun and not self.is_innermost(joined):
            raise UnitOfWorkError(
                "a unit of work that was opened later in the same transaction is still at work; "
                "commit or leave it first"
            )

    def finish(self, joined: "_Joined") -> None:
        """Note how a joined session's savepoint ended."""
        if not joined.has_begun:
            return
        self._begun.remove(joined)
        joined.has_begun = False
        if joined.committed:
            self._arm(joined)
        elif joined.wrote:
            self._undo(joined)
        joined.committed = joined.wrote = False

    def _undo(self, joined: "_Joined") -> None:
        if self.armed > joined.armed_before:
            self._undone = True
        if joined.is_whole:
            self._lost = True
            self.owner.roll_back()

    def _arm(self, joined: "_Joined") -> None:
        self.armed += 1
        capture = capture_of(joined.session.sync_session)
        self.owner.armed(None if capture is None else capture.transaction_id)


@dataclass(slots=True, eq=False)
class _Joined:
    """One session's part in a running transaction, and what it was before."""

    running: RunningTransaction
    session: AsyncSession
    has_begun: bool = False
    armed_before: int = 0
    committed: bool = False
    wrote: bool = False
    """Whether it has done anything else than select."""
    is_whole: bool = False
    """Whether it has no savepoint, so that the whole transaction is undone with it."""
    _mode: Any = None

    def check(self) -> None:
        """Refuse a session of another database or tenant, or one that is at work elsewhere."""
        if self.session.in_transaction() or _OWNS in self.session.info:
            raise UnitOfWorkError(
                "session_factory hands out a session that is at work already, which cannot join "
                "a transaction; let it make a new session for each unit of work"
            )
        found, running = engine_of(self.session.sync_session), self.running.owner.engine
        if found is None or running is None or not is_same_database(found, running):
            raise NotJoinable(_place(found), _place(running))
        self._check_tenant(self.running.owner.tenant_id)

    def _check_tenant(self, held: str | None) -> None:
        if held is None:
            return
        named: str = self.session.info.setdefault(TENANT, held)
        if named != held:
            raise TenantMismatch("a unit of work inside a running transaction", named, held)

    @property
    def is_innermost(self) -> bool:
        """Whether no other session has begun after this one."""
        return self.has_begun and self.running.is_innermost(self)

    def enter(self) -> None:
        """Have the session use the owner's connection."""
        sync_session = self.session.sync_session
        self._mode = sync_session.join_transaction_mode
        sync_session.get_bind = partial(_bind, self, sync_session)  # type: ignore[method-assign] # SQLAlchemy's own hook, for one session
        self.session.info[_JOINED] = self

    def connection(self) -> Connection:
        """Return the owner's connection; say how the session joins it, if it is about to."""
        if not self.running.is_open:
            raise UnitOfWorkError(_ENDED)
        if not self.has_begun:
            self.is_whole = not self.running.needs_savepoint()
            self.session.sync_session.join_transaction_mode = (
                "rollback_only" if self.is_whole else "create_savepoint"
            )
        return self.running.connection()

    def let_go(self, session: Session) -> None:
        """End a session that has only read: nothing is undone, and nothing is written."""
        savepoint = None if self.is_whole else self.running.connection().get_nested_transaction()
        if savepoint is not None:
            savepoint.commit()
        session.close()

    def leave(self) -> None:
        """Give the session its own database again."""
        sync_session = self.session.sync_session
        del self.session.info[_JOINED], sync_session.get_bind
        sync_session.join_transaction_mode = self._mode


def _bind(joined: _Joined, session: Session, *args: Any, **options: Any) -> Engine | Connection:
    """Return the owner's connection where the session would use an engine of that database."""
    own = type(session).get_bind(session, *args, **options)
    joined.wrote = joined.wrote or not _only_reads(options.get("clause"))
    running = joined.running.owner.engine
    is_ours = running is not None and is_same_database(own.engine, running)
    return joined.connection() if is_ours else own


def _only_reads(clause: Any) -> bool:
    """Say of a statement that it is a SELECT with nothing else in it; of none, that it is not."""
    if not isinstance(clause, SelectBase):
        return False
    return not any(isinstance(part, UpdateBase) for part in iterate(clause))


_running: ContextVar[RunningTransaction | None] = ContextVar("pillarbox_running", default=None)


@asynccontextmanager
async def joined_transaction(
    owner: AsyncSession | Owner, *, asks_at_end: bool = True
) -> AsyncIterator[RunningTransaction]:
    """Have the units of work of this block join the transaction of a session, or of a connection.

    The module's docstring says what that means for commits, rollbacks and exceptions. An owner
    whose next statement fails if the transaction was aborted may pass `asks_at_end=False`.
    """
    if isinstance(owner, AsyncSession):
        running = RunningTransaction(SessionOwner(owner), asks_at_end=asks_at_end)
        owner.info[_OWNS] = running
    else:
        running = RunningTransaction(owner, asks_at_end=asks_at_end)
    token = _running.set(running)
    try:
        yield running
        await running.end()
    except BaseException:
        await running.abandon()
        raise
    finally:
        running.is_open = False
        _running.reset(token)


def running_transaction() -> RunningTransaction | None:
    """Return the transaction that a unit of work opened here would join."""
    running = _running.get()
    # A task that the handler left behind keeps the context; the transaction is over for it.
    return running if running is not None and running.is_open else None


async def let_go(session: AsyncSession) -> bool:
    """End a joined session that has only read; False if it has not joined, or has written."""
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is None or joined.wrote or not joined.is_innermost:
        return False
    await session.run_sync(joined.let_go)
    return True


@asynccontextmanager
async def joining_session(factory: Callable[[], AsyncSession]) -> AsyncIterator[AsyncSession]:
    """Yield a session that joins the running transaction; without one it has its own."""
    running = running_transaction()
    async with factory() as session:
        if running is None:
            yield session
            return
        await running.join(session)
        try:
            yield session
        finally:
            if session.in_transaction() and not await let_go(session):
                await session.rollback()
            leave(session)


def leave(session: AsyncSession) -> None:
    """Take a session out of the transaction that it joined, if it did."""
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is not None:
        joined.leave()


def has_joined(session: AsyncSession) -> bool:
    """Say whether a session's commits wait for an owner's."""
    return _JOINED in session.info


def is_over(session: AsyncSession) -> bool:
    """Say whether a session joined a transaction that has ended meanwhile."""
    joined: _Joined | None = session.info.get(_JOINED)
    return joined is not None and not joined.running.is_open


def _place(engine: Engine | None) -> str:
    return "no single database" if engine is None else shown(engine.url)


@event.listens_for(Session, "after_begin")
def _began(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    del connection
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is not None and not transaction.nested:
        joined.running.begin(joined)


@event.listens_for(Session, "before_commit")
def _about_to_commit(session: Session) -> None:
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is not None and not session.in_nested_transaction():
        joined.running.check_innermost(joined)


@event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    if session.in_nested_transaction():
        return
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is not None:
        joined.committed = True
    owned: RunningTransaction | None = session.info.pop(_OWNS, None)
    if owned is not None and owned.armed:
        # What the joined sessions told at their own commits came too early to find anything.
        wakeup_of(session.get_bind()).tell()


@event.listens_for(Session, "after_transaction_end")
def _ended(session: Session, transaction: SessionTransaction) -> None:
    joined: _Joined | None = session.info.get(_JOINED)
    if joined is not None and transaction.parent is None:
        joined.running.finish(joined)
