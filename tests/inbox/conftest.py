from collections.abc import AsyncIterator

import pytest

from tests.inbox.targets import TARGETS, Target, opened
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Target]:
    """A session, and a connection, on a database without messages."""
    async with opened(database, request.param) as found:
        yield found
