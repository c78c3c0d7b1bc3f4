from collections.abc import AsyncIterator

import pytest

from tests.saga.shop import Shop
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    """A service with the saga of the requirements and its participants, on a bus in memory."""
    made = Shop(database)
    await made.clear()
    yield made
    await made.clear()
