"""A running transaction, and the part that each session has in it: `joining.py` says what it means."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import ClauseElement, Connection, NestedTransaction, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util import greenlet_spawn

from pillarbox.errors import UnitOfWorkError
from pillarbox.outbox.capture import POSTPONE, capture_of
from pillarbox.outbox.postponed import PostponedEvent
from pillarbox.uow.joinable import (
    check_database,
    check_joinable,
    has_unwritten,
    stands_in_own_block,
)
from pillarbox.uow.owner import Owner
from pillarbox.uow.reading import only_reads, told
from pillarbox.uow.standing import stands

JOINED: Final = "pillarbox.joined"
_ENDED: Final = "the transaction that this session joined has ended; make a new session"
_LATER: Final = (
    "a unit of work that was opened later in the same transaction is still at work; "
    "commit or leave it first"
)
_RUINED: Final = (
    "this unit of work was undone with the one around it, which was rolled back; make a new one"
)
_OWN_BLOCK: Final = (
    "a session has written inside its own `async with session.begin()`, which commits only after "
    "the answer, when it is too late; call `await session.commit()` in the endpoint, without that "
    "block, or use box.uow"
)


@dataclass(slots=True, eq=False)
class Part:
    """What stands and falls together: what a session does, or does in a savepoint of its user's."""

    joined: "Joined"
    savepoint: SessionTransaction | None
    """The user's savepoint; None for all that the session does."""
    stands_in: NestedTransaction | None
    """Its savepoint as the connection knows it; None if it has the whole transaction."""
    armed_before: int
    holds_owner: bool = False
    """Whether what the owner has written stands in it, and goes with it."""
    holds_others: bool = False
    """Whether a session around it has written meanwhile."""


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
    _joined: list["Joined"] = field(default_factory=list)
    _begun: list[Part] = field(default_factory=list)
    """What is open, each inside the one before it."""
    _undone: str | None = None
    """How work that was armed, or must not stand alone, came to be undone."""
    _lost: bool = False

    async def join(self, session: AsyncSession) -> None:
        """Put a session that has not begun into this transaction; `leave` takes it out again.

        The owner's transaction begins when it or a joined session first needs it.
        """
        check_joinable(session, self.owner)
        joined = Joined(self, session)
        await self.owner.write_what_waits()
        joined.enter()
        self._joined.append(joined)

    async def end(self) -> None:
        """Roll back what is still open; refuse to go on when armed work was undone."""
        self._refuse_undone()
        for part in reversed(self._sessions()):
            await _roll_back(part)
        self._refuse_undone()
        if self._lost:
            await greenlet_spawn(self.connection)
        if self.armed and self.asks_at_end:
            # PostgreSQL answers the COMMIT of an aborted transaction with a rollback and no error.
            await greenlet_spawn(lambda: self.connection().execute(text("SELECT 1")))

    async def abandon(self) -> None:
        """Roll back what is still open while an exception passes."""
        for part in reversed(self._sessions()):
            # The owner rolls back all the same, and the exception that passes says what went wrong.
            with suppress(SQLAlchemyError, OSError):
                await _roll_back(part)

    def refuse_open_blocks(self) -> None:
        """Refuse what a session has done inside a `session.begin()` block that is still open.

        For an owner that commits before such a block ends, as one around dependencies does.
        """
        for joined in self._joined:
            session = joined.session.sync_session
            if stands_in_own_block(session) and (joined.wrote or has_unwritten(session)):
                reason = f" (it counts as a writer because {told(joined.writer)})"
                raise UnitOfWorkError(_OWN_BLOCK + (reason if joined.wrote else ""))

    def _refuse_undone(self) -> None:
        if self._undone is not None:
            raise UnitOfWorkError(
                f"{self._undone}, so both are undone; nothing may be committed, end the inner "
                "ones after the outer one or open them with independent=True"
            )

    def _sessions(self) -> list[Part]:
        return [part for part in self._begun if part.savepoint is None]

    def connection(self) -> Connection:
        """Return the owner's connection, for a statement that sees all that came before it."""
        connection = self.owner.connection()
        if self._lost:
            self.owner.restart(connection)
            self._lost = False
            self.owner_wrote()
        if self.postponed is not None:
            self.postponed.write(connection)  # one that fails is not forgotten
            self.postponed = None
        return connection

    def owner_wrote(self) -> None:
        """Note what the owner has written for itself: a savepoint that is open may take it along."""
        for part in self._begun:
            part.holds_owner = True

    def needs_savepoint(self) -> bool:
        """Say whether there is anything that must stay when a unit of work is undone."""
        return not self.owner.restarts or bool(self._begun) or self.armed > 0

    def begin(
        self, joined: "Joined", transaction: SessionTransaction, connection: Connection
    ) -> None:
        """Note that a joined session has begun its part, or a savepoint inside it."""
        savepoint = transaction if transaction.nested else None
        part = Part(joined, savepoint, connection.get_nested_transaction(), self.armed)
        self._begun.append(part)
        if savepoint is None:
            joined.part = part

    def others_in(self, part: Part | None) -> list[Part]:
        """Return what other sessions have open inside a part."""
        if part is None or self._begun[-1] is part:
            return []
        inside = self._begun[self._begun.index(part) + 1 :]
        return [other for other in inside if other.joined is not part.joined]

    def check_innermost(self, joined: "Joined") -> None:
        """Refuse to commit a session around another one that is open, or after the end."""
        if joined.part is not None and not self.is_open:
            raise UnitOfWorkError(_ENDED)
        if self.others_in(joined.part):
            raise UnitOfWorkError(_LATER)

    def check_savepoint(self, savepoint: SessionTransaction) -> None:
        """Refuse to release a user's savepoint around another session that is open."""
        if self.others_in(self._part_of(savepoint)):
            raise UnitOfWorkError(_LATER)

    def _part_of(self, savepoint: SessionTransaction) -> Part | None:
        return next((part for part in self._begun if part.savepoint is savepoint), None)

    def released(self, savepoint: SessionTransaction) -> None:
        """Let what was done in a user's savepoint belong to what is around it."""
        part = self._part_of(savepoint)
        if part is not None:
            self._begun.remove(part)

    def rolled_back(self, savepoint: SessionTransaction) -> None:
        """Note that a user's savepoint has ended, if it was not released."""
        part = self._part_of(savepoint)
        if part is not None and part.joined.is_let_go:
            self._begun.remove(part)
        elif part is not None:
            self._undo(part)

    def finish(self, joined: "Joined") -> None:
        """Note how a joined session's part ended."""
        part = joined.part
        try:
            if part is None:
                return
            if not joined.committed and not joined.is_let_go:
                self._undo(part)
                return
            self._begun.remove(part)
            if joined.committed:
                self._arm(joined)
        finally:
            joined.reset()

    def _undo(self, part: Part) -> None:
        others, joined = self.others_in(part), part.joined
        self._begun.remove(part)
        self._undone = self._undone or self._loss_with(part, others)
        for other in reversed(others):
            other.joined.is_ruined = True
            _forget(other.stands_in)
        if others:
            _forget(part.stands_in)
        self._lost = self._lost or part.holds_owner
        if part.savepoint is None and joined.is_whole:
            self._lost, self.postponed = True, None
            self.owner.roll_back()

    def _loss_with(self, part: Part, others: list[Part]) -> str | None:
        """Say what was undone that must not be, when this part was; None if nothing was."""
        if self.armed > part.armed_before:
            how = "after another one inside it had been committed"
        elif any(other.joined.wrote for other in others):
            how = "around another one that is still at work"
        elif part.holds_others:
            how = "with what the one around it had written meanwhile"
        else:
            return None
        what = "a unit of work" if part.savepoint is None else "a savepoint of a unit of work"
        why = f" (it counts as a writer because {told(part.joined.writer)})"
        return f"{what} was rolled back{why if part.joined.wrote else ''} {how}"

    def _arm(self, joined: "Joined") -> None:
        self.armed += 1
        self.has_news = True
        capture = capture_of(joined.session.sync_session)
        self.owner.armed(None if capture is None else capture.transaction_id)

    def leave(self, joined: "Joined") -> None:
        """Forget a session."""
        self._joined.remove(joined)


@dataclass(slots=True, eq=False)
class Joined:
    """One session's part in a running transaction, and what it was before."""

    running: RunningTransaction
    session: AsyncSession
    part: Part | None = None
    """What it does since it has begun."""
    around: NestedTransaction | None = None
    """The savepoint in which it has begun."""
    committed: bool = False
    wrote: bool = False
    """Whether it has done anything else than select."""
    writer: ClauseElement | None = None
    """The statement that made it a writer; None if it was no statement."""
    is_whole: bool = False
    """Whether it has no savepoint, so that the whole transaction is undone with it."""
    is_let_go: bool = False
    """Whether it ends without being undone, although it was not committed."""
    is_ruined: bool = False
    """Whether what is around it was undone, and its savepoint is gone."""
    _mode: Any = None

    def reset(self) -> None:
        """Be as one that has not begun."""
        self.part = self.around = self.writer = None
        self.committed = self.wrote = self.is_let_go = self.is_ruined = False

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

    def note(self, clause: ClauseElement | None) -> None:
        """Note a statement that comes next, or that rows do, or somebody wants the connection."""
        others = self.running.others_in(self.part)
        if (self.wrote and not others) or only_reads(clause, self._dialect):
            return
        if not self.wrote:
            self.wrote, self.writer = True, clause
        for other in others:
            other.holds_others = True

    @property
    def _dialect(self) -> str:
        engine = self.running.owner.engine
        return "" if engine is None else engine.dialect.name

    def connection(self) -> Connection:
        """Return the owner's connection; say how the session joins it, if it is about to."""
        if not self.running.is_open:
            raise UnitOfWorkError(_ENDED)
        if self.is_ruined:
            raise UnitOfWorkError(_RUINED)
        if self.part is not None:
            return self.running.connection()
        self.is_whole = not self.running.needs_savepoint()
        self.session.sync_session.join_transaction_mode = (
            "rollback_only" if self.is_whole else "create_savepoint"
        )
        connection = self.running.connection()
        self.around = connection.get_nested_transaction()
        return connection

    def let_go(self, session: Session) -> bool:
        """End a session that has only read: nothing is undone, and nothing is written.

        False if a statement has aborted the transaction: then only a rollback lets it go on.
        """
        connection = self.running.owner.connection()
        if not stands(connection):
            return False
        while (savepoint := connection.get_nested_transaction()) not in {None, self.around}:
            savepoint.commit()  # its own, and its user's: somebody may have armed inside them
        self.is_let_go = True
        session.close()
        return True

    def leave(self) -> None:
        """Give the session its own database again."""
        sync_session = self.session.sync_session
        del self.session.info[JOINED], self.session.info[POSTPONE], sync_session.get_bind
        sync_session.join_transaction_mode = self._mode
        self.running.leave(self)


def _bind(joined: Joined, session: Session, *args: Any, **options: Any) -> Connection:
    """Return the owner's connection where the session would use an engine of that database."""
    own = type(session).get_bind(session, *args, **options)
    check_database(own.engine, joined.running.owner)
    joined.note(options.get("clause"))
    return joined.connection()


def _forget(savepoint: NestedTransaction | None) -> None:
    """Have SQLAlchemy know that a savepoint is gone with the one around it, which it does not see."""
    if savepoint is not None:
        savepoint.is_active = False
        savepoint._deactivate_from_connection(warn=False)  # noqa: SLF001 - there is no other way


async def _roll_back(part: Part) -> None:
    session = part.joined.session
    if not await let_go(session):
        await session.rollback()


async def let_go(session: AsyncSession) -> bool:
    """End a joined session that has only read; False if it must be rolled back, or has not joined."""
    joined: Joined | None = session.info.get(JOINED)
    if joined is None or joined.part is None or not joined.running.is_open:
        return False
    if joined.is_ruined:  # there is nothing left to be undone
        joined.is_let_go = True
        await session.close()
        return True
    if joined.wrote or joined.running.others_in(joined.part):
        return False
    return await session.run_sync(joined.let_go)
