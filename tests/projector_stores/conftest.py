from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pillarbox.servers import PgBouncer
from tests.projector_stores.rig import POOLED, STORES, Rig, rig_of
from tests.support.database import Databases, database, databases

__all__ = ["database", "databases"]


@pytest.fixture(params=STORES)
async def rig(
    request: pytest.FixtureRequest, databases: Databases, tmp_path: Path
) -> AsyncIterator[Rig]:
    """Each store on each database in turn, with nothing in it."""
    async with rig_of(request.param, databases, tmp_path) as found:
        if request.param == POOLED:
            pgbouncer: PgBouncer = request.getfixturevalue("pgbouncer")
            found.dsn = pgbouncer.url_of(found.database.url.database or "")
        yield found
