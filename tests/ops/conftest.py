from collections.abc import AsyncIterator

import pytest

from pillarbox.ops.act import ActLimits
from pillarbox.ops.acts import Ops
from tests.ops.rows import Rows
from tests.support.database import Database, database, databases
from tests.tenancy.wall import wall, walls

__all__ = ["database", "databases", "wall", "walls"]


@pytest.fixture
async def rows(database: Database) -> AsyncIterator[Rows]:
    """The tables of the projector, empty; the outbox is emptied with the database."""
    found = Rows(database.engine)
    await found.clear()
    yield found
    await found.clear()


@pytest.fixture
def ops(database: Database) -> Ops:
    return Ops(database.engine, actor="jane", limits=ActLimits(chunk=3, batch=4))
