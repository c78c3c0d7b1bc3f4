import pytest

from tests.delivery.shop import Shop
from tests.support.database import Database, database, databases

__all__ = ["database", "databases", "shop"]


@pytest.fixture
def shop(database: Database) -> Shop:
    return Shop(database)
