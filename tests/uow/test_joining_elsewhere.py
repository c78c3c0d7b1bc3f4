"""Which units of work stand on the database of the running transaction, and may join it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import make_url, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.uow.joinable import NotJoinable
from pillarbox.uow.joining import joined_transaction
from tests.support.database import Database, on
from tests.support.orders import Base, Basket, Order

Sessions = async_sessionmaker[AsyncSession]

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


@asynccontextmanager
async def elsewhere_sessions(database: Database, url: str) -> AsyncIterator[Sessions]:
    """Make an empty database with the tables of the tests, and a factory for it."""
    async with database.other_engine(make_url(url)) as engine:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield async_sessionmaker(engine)


async def test_another_engine_on_the_same_database_joins(database: Database) -> None:
    async with database.other_engine() as engine, database.sessions() as session:
        async with (
            joined_transaction(session),
            SQLAlchemyUnitOfWork(async_sessionmaker(engine)) as uow,
        ):
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.commit()
        await session.commit()

    assert await database.order_ids() == ["o-1"]


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('elsewhere')}/other.db"


async def test_another_database_is_refused_unless_independent(
    database: Database, elsewhere: str
) -> None:
    async with elsewhere_sessions(database, elsewhere) as sessions, database.sessions() as session:
        async with joined_transaction(session):
            with pytest.raises(NotJoinable, match="pass independent=True"):
                await SQLAlchemyUnitOfWork(sessions).__aenter__()
            async with SQLAlchemyUnitOfWork(sessions, independent=True) as uow:
                uow.session.add(Order(id="o-1"))
                await uow.commit()
        await session.rollback()

    assert await database.order_ids() == []


async def test_a_session_with_a_second_database_is_refused_where_it_touches_that(
    database: Database, elsewhere: str
) -> None:
    """It was in the transaction twice: the end of the block took for ever, and all of the process."""
    async with elsewhere_sessions(database, elsewhere) as other, database.sessions() as session:
        binds = {Basket: other.kw["bind"]}
        async with joined_transaction(session) as running:
            uow = SQLAlchemyUnitOfWork(async_sessionmaker(database.engine, binds=binds))
            await uow.__aenter__()
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
            with pytest.raises(NotJoinable, match="pass independent=True"):
                await uow.session.scalars(select(Basket.id))
            assert len(running._begun) == 1
        await session.commit()
        await uow.__aexit__()

    assert await database.order_ids() == []


async def test_databases_in_memory_are_never_the_same(database: Database) -> None:
    memory = "sqlite+aiosqlite://"
    async with (
        elsewhere_sessions(database, memory) as one,
        elsewhere_sessions(database, memory) as other,
        one() as session,
        joined_transaction(session),
    ):
        with pytest.raises(NotJoinable):
            await SQLAlchemyUnitOfWork(other).__aenter__()


async def test_a_refusal_shows_no_password(database: Database) -> None:
    secret = make_url("postgresql+psycopg://someone:planted-secret@db/shop")
    async with (
        database.other_engine(secret) as engine,
        database.sessions() as session,
        joined_transaction(session),
    ):
        with pytest.raises(NotJoinable) as refused:
            await SQLAlchemyUnitOfWork(async_sessionmaker(engine)).__aenter__()

    assert "planted-secret" not in str(refused.value)
