"""A database with tenants behind the wall, reached as the application that may not see past it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import NullPool

from pillarbox import collect_events
from pillarbox.database import sync_url
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.policies import tenant_policies
from pillarbox.servers import PgBouncer, Postgres
from pillarbox.tenancy import Tenancy
from tests.support.servers import require
from tests.tenancy.shop import OURS, SEED, TABLES, Base

OWNER, APP, PROJECTOR = "tenancy_owner", "tenancy_app", "tenancy_projector"
BACKENDS: Final = (
    "postgres18+asyncpg",
    "postgres18+psycopg",
    "postgres16+psycopg",
    "postgres15+asyncpg",
)
REQUIRED: Final = CaptureSettings(tenancy=Tenancy(required=True))

_ROLES: Final = (
    f"CREATE ROLE {OWNER} LOGIN CREATEROLE",
    f"CREATE ROLE {APP} LOGIN",
    f"CREATE ROLE {PROJECTOR} LOGIN",
)
_MEMBERS: Final = f"GRANT pillarbox_app TO {APP}; GRANT pillarbox_projector TO {PROJECTOR}"


@dataclass(frozen=True, slots=True)
class Wall:
    """One database; `sessions` stay inside a tenant, `engine` alone knows no tenant."""

    url: URL
    admin: psycopg.Connection
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]

    def url_as(self, role: str) -> URL:
        return self.url.set(username=role)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Read past the wall, as the superuser."""
        return self.admin.execute(statement.encode()).fetchall()

    def seed(self) -> None:
        empty = "".join(f"DELETE FROM {table}; " for table in (*OURS, *reversed(TABLES)))
        self.admin.execute((empty + SEED).encode())

    def everything_of(self, tenant: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of a tenant, to be compared before and after."""
        return {
            table: self.rows(
                f"SELECT * FROM {table} t WHERE tenant_id = '{tenant}' ORDER BY t::text"
            )
            for table in (*OURS, *TABLES)
        }


@dataclass(slots=True)
class Walls:
    """The databases of a test run: one for each server, seeded anew for every test."""

    request: pytest.FixtureRequest
    _admins: dict[str, psycopg.Connection] = field(default_factory=dict)

    def url(self, server: str) -> URL:
        postgres: Postgres = self.request.getfixturevalue(server)
        if server not in self._admins:
            self._admins[server] = _build(postgres)
        return make_url(postgres.url_of("tenancy"))

    @asynccontextmanager
    async def open(self, backend: str) -> AsyncIterator[Wall]:
        server, _, driver = backend.partition("+")
        url = self.url(server).set(drivername=f"postgresql+{driver}", username=APP)
        async with opened(url, self._admins[server]) as wall:
            wall.seed()
            yield wall

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()


@cache
def _build(postgres: Postgres) -> psycopg.Connection:
    """Make the database as its owner, who is not the application; once, whoever asks for it."""
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        for statement in (*_ROLES, f"CREATE DATABASE tenancy OWNER {OWNER}"):
            admin.execute(statement.encode())
    url = sync_url(postgres.url_of("tenancy")).set(username=OWNER)
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        apply(connection, SchemaOptions(tenancy=True))
        Base.metadata.create_all(connection)
        for table in TABLES:
            for statement in tenant_policies(table, projector_role=None):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO pillarbox_app"
            )
    engine.dispose()
    admin = psycopg.connect(postgres.url_of("tenancy"), autocommit=True)
    admin.execute("ALTER DATABASE tenancy SET synchronous_commit = off")
    admin.execute(_MEMBERS.encode())
    return admin


@asynccontextmanager
async def opened(url: URL, admin: psycopg.Connection, **options: Any) -> AsyncIterator[Wall]:
    """Connect to a database that stands."""
    engine = create_async_engine(url, **options)
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    collect_events(sessions, settings=REQUIRED)
    try:
        yield Wall(url, admin, engine, sessions)
    finally:
        await engine.dispose()


@pytest.fixture(scope="session")
def walls(request: pytest.FixtureRequest) -> Iterator[Walls]:
    made = Walls(request)
    yield made
    made.close()


@pytest.fixture(params=BACKENDS)
async def wall(request: pytest.FixtureRequest, walls: Walls) -> AsyncIterator[Wall]:
    """The wall on each server by each driver; tests narrow the choice with `behind(…)`."""
    async with walls.open(request.param) as found:
        yield found


def behind(*backends: str) -> pytest.MarkDecorator:
    """Run a test on some servers and drivers only."""
    return pytest.mark.parametrize("wall", backends, indirect=True)


one_wall: Final = behind("postgres18+asyncpg")
two_drivers: Final = behind("postgres18+asyncpg", "postgres18+psycopg")


@pytest.fixture(scope="session")
def narrow_bouncer(pytestconfig: pytest.Config, postgres18: Postgres) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode, where all clients share two connections to the server."""
    require(pytestconfig, "pgbouncer")
    with PgBouncer(postgres18, pool_size=2, roles=(APP,)) as bouncer:
        yield bouncer
