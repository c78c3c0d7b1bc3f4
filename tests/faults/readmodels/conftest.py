"""A database of its own, with the tables of the model."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Postgres
from tests.readmodel.rig import Base


@pytest.fixture
def url(postgres18: Postgres) -> Iterator[str]:
    name = f"readmodel_{uuid4().hex}"
    made = postgres18.create_database(name)
    engine = create_engine(sync_url(made))
    with engine.begin() as connection:
        apply(connection)
        Base.metadata.create_all(connection)
    engine.dispose()
    yield made
    postgres18.drop_database(name)
