from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.servers import Postgres

POSTGRES = ("postgres15", "postgres16", "postgres18")
SCHEMAS = text("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'")


@cache
def shared_database(server: Postgres) -> str:
    """Make one database per server; to create and drop one for each test would take minutes."""
    url = server.create_database("schema_tests")
    engine = create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER DATABASE schema_tests SET synchronous_commit = off")
    return url


def emptied(server: Postgres) -> str:
    """Return the address of a database without any table."""
    url = shared_database(server)
    with create_engine(sync_url(url), poolclass=NullPool).begin() as connection:
        for schema in connection.scalars(SCHEMAS).all():
            connection.exec_driver_sql(f'DROP SCHEMA "{schema}" CASCADE')
        connection.exec_driver_sql("CREATE SCHEMA public")
    return url


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
