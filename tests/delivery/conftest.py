from collections.abc import AsyncIterator

import pytest

from tests.delivery.shop import TABLES, Shop
from tests.support.database import Database, database, databases

__all__ = ["database", "databases", "shop"]


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    service = Shop(database)
    for table in TABLES:
        await service.run(f"DELETE FROM {table}")
    yield service
    for table in TABLES:
        await service.run(f"DELETE FROM {table}")
