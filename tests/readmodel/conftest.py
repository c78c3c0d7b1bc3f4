import pytest

from tests.readmodel.rig import Rig
from tests.support.database import Database, database, databases

__all__ = ["database", "databases"]


@pytest.fixture
async def rig(database: Database) -> Rig:
    """A log that begins with number 1, read models' tables, empty."""
    made = Rig(database)
    await made.prepare()
    return made
