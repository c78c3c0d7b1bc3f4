from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.servers import Postgres

POSTGRES = ("postgres15", "postgres16", "postgres18")


@pytest.fixture(params=POSTGRES)
def postgres(request: pytest.FixtureRequest) -> Postgres:
    """Each version of PostgreSQL in turn."""
    server: Postgres = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """The address of an empty database."""
    name = f"schema_{uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty PostgreSQL database."""
    engine = create_engine(sync_url(database_url), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture(params=[*POSTGRES, "sqlite"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database of every kind that is served."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/outbox.db"
        return
    server: Postgres = request.getfixturevalue(request.param)
    name = f"schema_{uuid4().hex}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def any_engine(any_url: str) -> Iterator[Engine]:
    """An empty database of every kind that is served."""
    engine = create_engine(sync_url(any_url), poolclass=NullPool)
    yield engine
    engine.dispose()
