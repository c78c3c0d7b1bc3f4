import pytest

from tests.saga.shop import Shop
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
def shop(database: Database) -> Shop:
    """A service with the saga of the requirements and its participants, on a bus in memory."""
    return Shop(database)
