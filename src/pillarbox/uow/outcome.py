"""What became of a commit whose answer was lost."""

from enum import StrEnum

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.errors import UnitOfWorkError


class CommitOutcome(StrEnum):
    """The fate of a transaction, as the database tells it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_PROGRESS = "in progress"
    UNKNOWN = "unknown"


class CommitUnknown(UnitOfWorkError):
    """The connection was lost during COMMIT: it may or may not have taken effect.

    Neither repeat the work nor report a failure before asking: `await error.outcome(factory)`.
    """

    code = "commit-unknown"

    def __init__(self, transaction_id: str | None) -> None:
        ask = (
            f"ask `SELECT pg_xact_status('{transaction_id}'::xid8)` or `await error.outcome(…)`"
            if transaction_id is not None
            else "look for the rows by their own keys"
        )
        super().__init__(
            "the connection was lost during COMMIT, so the transaction may or may not have "
            f"committed; {ask} before you repeat it"
        )
        self.transaction_id = transaction_id

    async def outcome(self, session_factory: async_sessionmaker[AsyncSession]) -> CommitOutcome:
        """Ask the database what became of the transaction; IN_PROGRESS means ask again."""
        if self.transaction_id is None:
            return CommitOutcome.UNKNOWN
        async with session_factory() as session:
            status = await session.scalar(
                text("SELECT pg_xact_status(CAST(CAST(:id AS text) AS xid8))"),
                {"id": self.transaction_id},
            )
        return CommitOutcome.UNKNOWN if status is None else CommitOutcome(status)


def is_unknown(error: DBAPIError | OSError) -> bool:
    """Tell an error that leaves a COMMIT open from one by which the database refused it.

    A refusal comes with an SQLSTATE of its own (a deferred constraint, a serialization failure).
    A lost connection has none, or one of the classes 08 and 57P, said while the server went down, or
    any other: a server that could not write its log says so and dies, and may find it written.
    """
    if isinstance(error, OSError):
        return True  # a socket that failed before the driver could say so
    original = error.orig
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    if not isinstance(state, str):
        return error.connection_invalidated or not getattr(original, "sqlite_errorname", None)
    return error.connection_invalidated or state.startswith(("08", "57P"))
