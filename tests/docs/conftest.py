from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Postgres


@pytest.fixture
def database_url(postgres18: Postgres) -> Iterator[str]:
    """The address of a database that has the outbox tables and nothing else."""
    name = f"docs_{uuid4().hex}"
    url = postgres18.create_database(name)
    engine = create_engine(sync_url(url))
    apply(engine)
    engine.dispose()
    yield url
    postgres18.drop_database(name)
