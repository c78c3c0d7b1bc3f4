import pytest

from pillarbox.ops.act import ActLimits
from pillarbox.ops.acts import Ops
from tests.ops.rows import Rows
from tests.support.database import Database, database, databases
from tests.tenancy.wall import wall, walls

__all__ = ["database", "databases", "wall", "walls"]


@pytest.fixture
def rows(database: Database) -> Rows:
    """The tables of the projector, empty as all are."""
    return Rows(database.engine)


@pytest.fixture
def ops(database: Database) -> Ops:
    return Ops(database.engine, actor="jane", limits=ActLimits(chunk=3, batch=4))
