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
  it: they end in the order in which a stack ends, and another order raises `UnitOfWorkError`.
- What is undone unseen is never committed. If the outer one, or a savepoint of its user's, is rolled
  back after an inner one was armed in it, the inner one's work is gone too; so is what an inner one
  has written that is still at work there, and what the outer one wrote while an inner one was at
  work that is rolled back then. In these cases the end of the block raises `UnitOfWorkError`, so
  that the owner does not commit a part. An inner one that has only read is refused what it does
  later. What the owner wrote in a savepoint that is rolled back is written again by `restart`.
- A unit of work that is still open when the block ends is rolled back, and says so when it is used.
- One that has only read leaves no trace when it ends, with the savepoints that it has open, also
  around others that were armed; unless it is rolled back by a call, or one of its statements failed
  and aborted the transaction. `reading.py` says what counts as reading.
- An owner that commits before the blocks of its users end, as the idempotent route does, asks
  `refuse_open_blocks`: what stands in an open `session.begin()` would be undone.
- On another database, or as another user, it raises `NotJoinable`, because no transaction would
  hold both, and so does a session with several where it touches the other one; `independent=True` gives it a transaction of its own, here and there.

The block neither commits nor rolls back the owner's session. An exception passes through it.

A savepoint costs two round trips. A `ConnectionOwner` has written nothing but what it can write
again. The first unit of work then works without a savepoint; if it is undone, the whole transaction
is, and `restart` writes the owner's part into a new one before anything else is done.

An owner may take over the event of such a unit of work, if it is its only one, and write it with
its own last statement. A statement of any other session comes after it all the same.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from pillarbox.outbox.wakeup import wakeup_of
from pillarbox.uow.joinable import OWNS
from pillarbox.uow.owner import Owner, SessionOwner
from pillarbox.uow.running import JOINED, Joined, RunningTransaction, let_go

_running: ContextVar[RunningTransaction | None] = ContextVar("pillarbox_running", default=None)


@asynccontextmanager
async def joined_transaction(
    owner: AsyncSession | Owner, *, asks_at_end: bool = True, takes_event: bool = False
) -> AsyncIterator[RunningTransaction]:
    """Have the units of work of this block join the transaction of a session, or of a connection.

    The module's docstring says what that means for commits, rollbacks and exceptions. An owner
    whose next statement fails if the transaction was aborted may pass `asks_at_end=False`; one
    that writes what it finds in `postponed` together with that statement, `takes_event=True`.
    """
    if isinstance(owner, AsyncSession):
        running = RunningTransaction(SessionOwner(owner), asks_at_end=asks_at_end)
        earlier: RunningTransaction | None = owner.info.get(OWNS)
        running.has_news = earlier is not None and earlier.has_news
        owner.info[OWNS] = running
    else:
        running = RunningTransaction(owner, asks_at_end=asks_at_end, takes_event=takes_event)
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
    joined: Joined | None = session.info.get(JOINED)
    if joined is not None:
        joined.leave()


def has_joined(session: AsyncSession) -> bool:
    """Say whether a session's commits wait for an owner's."""
    return JOINED in session.info


def is_over(session: AsyncSession) -> bool:
    """Say whether a session joined a transaction that has ended meanwhile."""
    joined: Joined | None = session.info.get(JOINED)
    return joined is not None and not joined.running.is_open


@event.listens_for(Session, "after_begin")
def _began(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    joined: Joined | None = session.info.get(JOINED)
    if joined is not None:
        joined.running.begin(joined, transaction, connection)


@event.listens_for(Session, "before_commit")
def _about_to_commit(session: Session) -> None:
    joined: Joined | None = session.info.get(JOINED)
    if joined is None:
        return
    savepoint = session.get_nested_transaction()
    if savepoint is None:
        joined.running.check_innermost(joined)
    else:
        joined.running.check_savepoint(savepoint)


@event.listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    joined: Joined | None = session.info.get(JOINED)
    savepoint = session.get_nested_transaction()
    if savepoint is not None:
        if joined is not None:
            joined.running.released(savepoint)
        return
    if joined is not None:
        joined.committed = True
    owned: RunningTransaction | None = session.info.pop(OWNS, None)
    if owned is not None and owned.has_news:
        # What the joined sessions told at their own commits came too early to find anything.
        wakeup_of(session.get_bind()).tell()


@event.listens_for(Session, "after_transaction_end")
def _ended(session: Session, transaction: SessionTransaction) -> None:
    joined: Joined | None = session.info.get(JOINED)
    if joined is None:
        return
    if transaction.nested:
        joined.running.rolled_back(transaction)
    elif transaction.parent is None:
        joined.running.finish(joined)
