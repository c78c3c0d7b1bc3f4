from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from tests.schema.databases import emptied

POSTGRES = ("postgres15", "postgres16", "postgres18")


@pytest.fixture(params=POSTGRES)
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, on each version of PostgreSQL in turn."""
    return emptied(request.getfixturevalue(request.param))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty PostgreSQL database."""
    engine = create_engine(sync_url(database_url), poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture(params=[*POSTGRES, "sqlite"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of every kind that is served."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/outbox.db"
    return emptied(request.getfixturevalue(request.param))


@pytest.fixture
def any_engine(any_url: str) -> Iterator[Engine]:
    """An empty database of every kind that is served."""
    engine = create_engine(sync_url(any_url), poolclass=NullPool)
    yield engine
    engine.dispose()
