from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from tests.inbox.targets import TARGETS, Target, opened
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
async def empty_inbox(database: Database) -> None:
    """A database without messages."""
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM inbox"))


@pytest.fixture(params=TARGETS)
async def target(
    request: pytest.FixtureRequest, database: Database, empty_inbox: None
) -> AsyncIterator[Target]:
    """A session, and a connection, on a database without messages."""
    async with opened(database, request.param) as found:
        yield found
