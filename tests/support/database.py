"""Fresh, empty, migrated databases for tests, one for each server and driver that is served."""

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import URL, Connection, Engine, Select, create_engine, event, func, select, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import NullPool

from pillarbox import OutboxRecord
from pillarbox.database import async_url, sync_url
from pillarbox.schema import apply
from pillarbox.schema.tables import metadata
from pillarbox.servers import Postgres
from tests.support.orders import Base, Order

BACKENDS: Final = (
    "postgres18+asyncpg",
    "postgres18+psycopg",
    "postgres16+psycopg",
    "postgres15+asyncpg",
    "sqlite+aiosqlite",
)
POSTGRES_BACKENDS: Final = BACKENDS[:2]
SYNC_BACKENDS: Final = ("postgres18+psycopg", "sqlite+aiosqlite")
PROPERTY_BACKENDS: Final = ("postgres18+asyncpg", "sqlite+aiosqlite")

_KEPT: Final = {"outbox_settings"}


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated database with the tables of the tests, for async and for sync use."""

    name: str
    url: URL
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]

    @property
    def is_postgres(self) -> bool:
        return self.url.get_backend_name() == "postgresql"

    @asynccontextmanager
    async def other_engine(
        self, url: URL | None = None, **options: Any
    ) -> AsyncIterator[AsyncEngine]:
        """Make another engine on this database, or on the same one through another address."""
        engine = _prepared(create_async_engine(url or self.url, **options))
        try:
            yield engine
        finally:
            await engine.dispose()

    @contextmanager
    def sync_engine(self, **options: Any) -> Iterator[Engine]:
        engine = create_engine(sync_url(self.url), **options)
        _begin_explicitly(engine)
        try:
            yield engine
        finally:
            engine.dispose()

    async def events(self) -> list[OutboxRecord]:
        """Read what was committed, over a connection of its own, in the order of the rows."""
        return list(await self._read(select(OutboxRecord).order_by(OutboxRecord.seq)))

    async def event_types(self) -> list[str]:
        return [record.event_type for record in await self.events()]

    async def count(self) -> int:
        counted: int = (await self._read(select(func.count()).select_from(OutboxRecord)))[0]
        return counted

    async def order_ids(self) -> list[str]:
        return list(await self._read(select(Order.id).order_by(Order.id)))

    async def versions(self) -> dict[str, int]:
        async with self.sessions() as session:
            rows = await session.execute(select(Order.id, Order.version))
            return {row.id: row.version for row in rows}

    async def scalar(self, statement: str, values: Mapping[str, Any] | None = None) -> Any:
        async with self.engine.connect() as connection:
            return await connection.scalar(text(statement), dict(values or {}))

    async def _read(self, statement: Select[Any]) -> list[Any]:
        async with self.sessions() as session:
            return list(await session.scalars(statement))


@dataclass(slots=True)
class Databases:
    """The databases of a test run: each is made once and emptied for every test."""

    request: pytest.FixtureRequest
    folder: Path
    _urls: dict[str, str] = field(default_factory=dict)
    _cleaners: dict[str, psycopg.Connection] = field(default_factory=dict)

    def url(self, name: str, folder: Path) -> URL:
        server, _, driver = name.partition("+")
        if server == "sqlite":
            return async_url(f"sqlite:///{self._sqlite(folder)}")
        if name not in self._urls:
            postgres: Postgres = self.request.getfixturevalue(server)
            self._urls[name] = postgres.create_database(f"tests_{uuid4().hex}")
            _migrate(self._urls[name])
            self._cleaners[name] = psycopg.connect(
                self._urls[name], autocommit=True, options="-c lock_timeout=10s"
            )
        else:
            self._cleaners[name].execute(_emptying().encode())
        return async_url(self._urls[name].replace("postgresql:", f"postgresql+{driver}:"))

    def close(self) -> None:
        for cleaner in self._cleaners.values():
            cleaner.close()

    def _sqlite(self, folder: Path) -> Path:
        template, copy = self.folder / "template.db", folder / "outbox.db"
        if not template.exists():
            _migrate(f"sqlite:///{template}")
        shutil.copy(template, copy)
        return copy


def _migrate(url: str) -> None:
    """Make the tables: the one place that knows how."""
    engine = create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        apply(connection)
        Base.metadata.create_all(connection)
    engine.dispose()


@cache
def _emptying() -> str:
    """Return what empties all tables that `_migrate` made: one statement list, one way there."""
    names = (table.name for table in (*metadata.sorted_tables, *Base.metadata.sorted_tables))
    return "; ".join(f"DELETE FROM {name}" for name in names if name not in _KEPT)


def _prepared(engine: AsyncEngine) -> AsyncEngine:
    _begin_explicitly(engine.sync_engine)
    return engine


def _begin_explicitly(engine: Engine) -> None:
    """Have SQLite begin where SQLAlchemy says so; its driver would begin late, or not at all."""
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def connected(dbapi_connection: Any, record: object) -> None:
        del record
        dbapi_connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def began(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")


@asynccontextmanager
async def opened(name: str, url: URL) -> AsyncIterator[Database]:
    """Connect to a database that is ready."""
    engine = _prepared(create_async_engine(url))
    try:
        yield Database(name, url, engine, async_sessionmaker(engine, expire_on_commit=False))
    finally:
        await engine.dispose()


@pytest.fixture(scope="session")
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Databases]:
    made = Databases(request, tmp_path_factory.mktemp("databases"))
    yield made
    made.close()


@pytest.fixture(params=BACKENDS)
async def database(
    request: pytest.FixtureRequest, databases: Databases, tmp_path: Path
) -> AsyncIterator[Database]:
    """Each served database in turn; tests narrow the choice with `on(…)`."""
    async with opened(request.param, databases.url(request.param, tmp_path)) as found:
        yield found


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on some of the databases only."""
    return pytest.mark.parametrize("database", names, indirect=True)


on_postgres: Final = on(*POSTGRES_BACKENDS)
on_sync: Final = on(*SYNC_BACKENDS)
