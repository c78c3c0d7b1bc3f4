from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from pillarbox.readmodel.redis_cache import RedisRowCache
from pillarbox.servers import Redis
from tests.readmodel.rig import Rig
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
async def rig(database: Database) -> Rig:
    """A log that begins with number 1, read models' tables, empty."""
    made = Rig(database)
    await made.prepare()
    return made


@pytest.fixture
async def cache(redis_server: Redis) -> AsyncIterator[RedisRowCache]:
    """A cache of rows with nothing in it, in a real Redis."""
    made = RedisRowCache(redis_server.url, prefix=f"test-{uuid4().hex}")
    yield made
    await made.close()
