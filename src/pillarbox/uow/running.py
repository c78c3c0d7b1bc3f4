"""A running transaction, and the part that each session has in it: `joining.py` says what it means."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from pillarbox.database import shown
from pillarbox.errors import TenantMismatch, UnitOfWorkError
from pillarbox.outbox.capture import POSTPONE, TENANT, capture_of
from pillarbox.outbox.postponed import PostponedEvent
from pillarbox.uow.owner import Owner, engine_of, is_same_database
from pillarbox.uow.reading import only_reads
from pillarbox.uow.standing import stands

JOINED: Final = "pillarbox.joined"
OWNS: Final = "pillarbox.owns"
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
    has_news: bool = False
    """Whether any waits for it, also of an earlier block in the same transaction."""
    asks_at_end: bool = True
    is_open: bool = True
    takes_event: bool = False
    postponed: PostponedEvent | None = None
    """An armed unit of work's event that is not written yet; the owner must do it."""
    _begun: list["Joined"] = field(default_factory=list)
    _undone: bool = False
    _lost: bool = False

    async def join(self, session: AsyncSession) -> None:
        """Put a session that has not begun into this transaction; `leave` takes it out again.

        The owner's transaction begins when it or a joined session first needs it.
        """
        joined = Joined(self, session)
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
        """Return the owner's connection, for a statement that sees all that came before it."""
        connection = self.owner.connection()
        if self._lost:
            self.owner.restart(connection)
            self._lost = False
        if self.postponed is not None:
            self.postponed.write(connection)  # one that fails is not forgotten
            self.postponed = None
        return connection

    def owner_wrote(self) -> None:
        """Note what the owner has written for itself: a savepoint that is open may take it along."""
        for joined in self._begun:
            joined.holds_owner = True

    def needs_savepoint(self) -> bool:
        """Say whether there is anything that must stay when a unit of work is undone."""
        return not self.owner.restarts or bool(self._begun) or self.armed > 0

    def begin(self, joined: "Joined") -> None:
        """Note that a joined session has begun its part."""
        self._begun.append(joined)
        joined.has_begun, joined.armed_before = True, self.armed

    def is_innermost(self, joined: "Joined") -> bool:
        """Say whether a session that has begun is the last that did."""
        return self._begun[-1] is joined

    def check_innermost(self, joined: "Joined") -> None:
        """Refuse to end a savepoint around another one that is open."""
        if not self.is_open:
            raise UnitOfWorkError(_ENDED)
        if joined.has_begun and not self.is_innermost(joined):
            raise UnitOfWorkError(
                "a unit of work that was opened later in the same transaction is still at work; "
                "commit or leave it first"
            )

    def finish(self, joined: "Joined") -> None:
        """Note how a joined session's savepoint ended."""
        if not joined.has_begun:
            joined.committed = False
            return
        self._begun.remove(joined)
        joined.has_begun = False
        if joined.committed:
            self._arm(joined)
        elif not joined.is_let_go:
            self._undo(joined)
        joined.committed = joined.wrote = joined.is_let_go = joined.holds_owner = False

    def _undo(self, joined: "Joined") -> None:
        if self.armed > joined.armed_before:
            self._undone = True
        self._lost = self._lost or joined.holds_owner
        if joined.is_whole:
            self._lost, self.postponed = True, None
            self.owner.roll_back()

    def _arm(self, joined: "Joined") -> None:
        self.armed += 1
        self.has_news = True
        capture = capture_of(joined.session.sync_session)
        self.owner.armed(None if capture is None else capture.transaction_id)


@dataclass(slots=True, eq=False)
class Joined:
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
    holds_owner: bool = False
    """Whether what the owner has written stands in its savepoint, and goes with it."""
    is_let_go: bool = False
    """Whether it ends without being undone, although it was not committed."""
    _mode: Any = None

    def check(self) -> None:
        """Refuse a session of another database or tenant, or one that is at work elsewhere."""
        if self.session.in_transaction() or OWNS in self.session.info:
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
        self.session.info[JOINED] = self
        self.session.info[POSTPONE] = self.postpone

    def postpone(self, event: PostponedEvent) -> bool:
        """Leave an event to the owner's last statement; False if it could be undone alone."""
        is_possible = self.running.takes_event and self.is_whole
        if is_possible and not self.session.in_nested_transaction():
            self.running.postponed = event
            return True
        return False

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

    def let_go(self, session: Session) -> bool:
        """End a session that has only read: nothing is undone, and nothing is written.

        False if a statement has aborted the transaction: then only a rollback lets it go on.
        """
        connection = self.running.owner.connection()
        if not stands(connection):
            return False
        savepoint = None if self.is_whole else connection.get_nested_transaction()
        if savepoint is not None:
            savepoint.commit()
        self.is_let_go = True
        session.close()
        return True

    def leave(self) -> None:
        """Give the session its own database again."""
        sync_session = self.session.sync_session
        del self.session.info[JOINED], self.session.info[POSTPONE], sync_session.get_bind
        sync_session.join_transaction_mode = self._mode


def _bind(joined: Joined, session: Session, *args: Any, **options: Any) -> Engine | Connection:
    """Return the owner's connection where the session would use an engine of that database."""
    own = type(session).get_bind(session, *args, **options)
    if not joined.wrote:
        joined.wrote = not only_reads(options.get("clause"))
    running = joined.running.owner.engine
    is_ours = running is not None and is_same_database(own.engine, running)
    return joined.connection() if is_ours else own


async def let_go(session: AsyncSession) -> bool:
    """End a joined session that has only read; False if it must be rolled back, or has not joined."""
    joined: Joined | None = session.info.get(JOINED)
    if joined is None or joined.wrote or not joined.is_innermost:
        return False
    return await session.run_sync(joined.let_go)


def _place(engine: Engine | None) -> str:
    return "no single database" if engine is None else shown(engine.url)
