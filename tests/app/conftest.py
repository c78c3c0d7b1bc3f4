from collections.abc import Iterator
from uuid import uuid4

import pytest

from pillarbox.servers import Postgres
from tests.support.database import database, databases

__all__ = ["database", "databases", "empty_url"]


@pytest.fixture
def empty_url(postgres18: Postgres) -> Iterator[str]:
    """The address of a database that has no tables at all."""
    name = f"app_{uuid4().hex}"
    yield postgres18.create_database(name)
    postgres18.drop_database(name)
