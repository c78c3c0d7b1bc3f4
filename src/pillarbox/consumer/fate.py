"""Who closed a connection: the database, or code of the user that gave up its own statement.

SQLAlchemy throws a connection away when a statement on it is cancelled, as a time-out around it
does. Afterwards it looks like one that was lost, and whatever is raised then need not tell: the code
may have caught its time-out and gone on.
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
    """Whether it was closed because a statement was cancelled."""


def fate_of(connection: AsyncConnection) -> Fate:
    """Return what a connection's end will be noted in; once it has ended it cannot be asked."""
    found: Fate = connection.info.setdefault(_FATE, Fate())
    return found


@event.listens_for(Pool, "invalidate")
def _note(driver: PoolProxiedConnection, record: Any, error: BaseException | None) -> None:
    """Note it with the connection that ends: the same place in the pool gets another one."""
    del driver
    fate = record.info.get(_FATE)
    if fate is not None:
        fate.given_up = isinstance(error, CancelledError)
