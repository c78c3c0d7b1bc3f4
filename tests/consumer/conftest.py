import pytest

from tests.consumer.rig import Shop
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
async def shop(database: Database) -> Shop:
    """A consumer's tables, empty, and a bus in memory."""
    made = Shop(database)
    await made.prepare()
    return made
