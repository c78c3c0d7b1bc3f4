"""A savepoint around what code of the user does on the session, which may end it or close its connection."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import SessionTransaction

from pillarbox.consumer.fate import is_undone
from pillarbox.consumer.transactions import DatabaseAway

Done = TypeVar("Done")


class Spoiled(Exception):
    """What failed cannot be undone alone: its savepoint is gone with it, or the connection is closed."""

    def __init__(self, error: Exception, *, closed: bool) -> None:
        super().__init__()
        self.error, self.closed = error, closed


class StatementFailed(Exception):
    """A method went on after a statement of its own that had failed."""

    def __init__(self) -> None:
        super().__init__(
            "a statement of it failed, and it went on, though the database takes nothing more in that "
            "transaction: let the error end the method, or put what may fail into "
            "`async with model.session.begin_nested()`"
        )


def innermost(session: AsyncSession) -> SessionTransaction | None:
    """Return the savepoint, or the transaction, that the session's next statement is part of."""
    own = session.sync_session
    return own.get_nested_transaction() or own.get_transaction()


async def in_savepoint(session: AsyncSession, act: Callable[[], Awaitable[Done]]) -> Done:
    """Do something in a savepoint: what it raises undoes it, and nothing else.

    Raise `Spoiled` where only the whole transaction can be undone.
    """
    connection = await session.connection()
    whole, done = True, False  # also if the savepoint itself is refused
    try:
        async with session.begin_nested() as nested:
            try:
                answer = await act()
                await session.flush()
            finally:
                whole = innermost(session) is nested.sync_transaction
                whole = whole and not is_undone(connection)
            done = True
    except DatabaseAway:
        raise
    except Exception as error:
        if connection.invalidated:
            raise Spoiled(error, closed=True) from error
        if done:  # SQLAlchemy does not go back to a savepoint that could not be released
            raise Spoiled(StatementFailed(), closed=False) from error
        if not whole:
            raise Spoiled(error, closed=False) from error
        raise
    else:
        return answer
