"""Who ended a connection or a transaction: the database, or code of the user that gave up a statement.

SQLAlchemy throws a connection away when a statement on it is cancelled, as a time-out around it
does, and when the driver's own time is up (`command_timeout` of asyncpg). Afterwards it looks like
one that was lost, and whatever is raised then need not tell: the code may have caught its time-out
and gone on.
"""

from asyncio import CancelledError
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Pool, PoolProxiedConnection, event
from sqlalchemy.ext.asyncio import AsyncConnection

_FATE: Final = "pillarbox.fate"


@dataclass(slots=True, eq=False)
class Fate:
    """What became of one connection to the database."""

    given_up: bool = False
    """Whether this side closed it: a statement was cancelled or took too long, or code asked for it."""


def fate_of(connection: AsyncConnection) -> Fate:
    """Return what a connection's end will be noted in; once it has ended it cannot be asked."""
    found: Fate = connection.info.setdefault(_FATE, Fate())
    return found


def is_undone(connection: AsyncConnection) -> bool:
    """Tell whether SQLite has rolled back a transaction by itself, as it may when its disk is full.

    Neither SQLAlchemy nor the driver notices: what follows would be written bit by bit, and a COMMIT
    would be answered as if all were there.
    """
    own = connection.sync_connection
    if own is None or own.closed or own.invalidated or own.dialect.name != "sqlite":
        return False
    return not getattr(own.connection.driver_connection, "in_transaction", True)


@event.listens_for(Pool, "invalidate")
def _note(driver: PoolProxiedConnection, record: Any, error: BaseException | None) -> None:
    """Note it with the connection that ends: the same place in the pool gets another one."""
    del driver
    fate = record.info.get(_FATE)
    if fate is not None:
        # Without an error somebody has called `invalidate`.
        fate.given_up = error is None or isinstance(error, CancelledError | TimeoutError)
