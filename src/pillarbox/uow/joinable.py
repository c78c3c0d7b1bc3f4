"""Whether a session may join a running transaction, and whether its work comes in time."""

from typing import Final

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransactionOrigin

from pillarbox.database import shown
from pillarbox.errors import TenantMismatch, UnitOfWorkError
from pillarbox.outbox.capture import TENANT, capture_of
from pillarbox.uow.owner import Owner, engine_of, is_same_database

OWNS: Final = "pillarbox.owns"


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


def check_joinable(session: AsyncSession, owner: Owner) -> None:
    """Refuse a session of another database or tenant, or one that is at work elsewhere."""
    if session.in_transaction() or OWNS in session.info:
        raise UnitOfWorkError(
            "session_factory hands out a session that is at work already, which cannot join "
            "a transaction; let it make a new session for each unit of work"
        )
    check_database(engine_of(session.sync_session), owner)
    held = owner.tenant_id
    if held is None:
        return
    named: str = session.info.setdefault(TENANT, held)
    if named != held:
        raise TenantMismatch("a unit of work inside a running transaction", named, held)


def check_database(found: Engine | None, owner: Owner) -> None:
    """Refuse another database than that of the transaction."""
    running = owner.engine
    if found is None or running is None or not is_same_database(found, running):
        raise NotJoinable(_place(found), _place(running))


def stands_in_own_block(session: Session) -> bool:
    """Say whether a session stands inside `session.begin()` used as a block, which is to commit it.

    One that was begun by a mere call is not meant: who does not commit it means that.
    """
    if session._trans_context_manager is None:  # noqa: SLF001 - SQLAlchemy tells it nowhere else
        return False
    root = session.get_transaction()
    return root is not None and root.origin is SessionTransactionOrigin.BEGIN


def has_unwritten(session: Session) -> bool:
    """Say whether a session has rows or events that a commit would write."""
    capture = capture_of(session)
    waits = capture is not None and capture.has_unwritten
    return waits or bool(session.new or session.dirty or session.deleted)


def _place(engine: Engine | None) -> str:
    return "no single database" if engine is None else shown(engine.url)
