"""Waiting projectors of this process are told after a commit of events, and only then."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pillarbox import SqlAlchemyOutbox, SQLAlchemyUnitOfWork, SyncSqlAlchemyOutbox
from pillarbox.outbox.wakeup import Listener, wakeup_of
from tests.support.database import Database, on
from tests.support.orders import Line, Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
SOON = 10.0
A_MOMENT = 0.05


@pytest.fixture
async def listener(database: Database) -> AsyncIterator[Listener]:
    with wakeup_of(database.engine).listen() as listener:
        yield listener


async def told(listener: Listener, within: float = A_MOMENT) -> bool:
    """Tell whether the listener was woken; a signal that has come is seen at once."""
    try:
        async with asyncio.timeout(within):
            await listener.wait()
    except TimeoutError:
        return False
    return True


async def test_a_unit_of_work_tells_after_its_commit(
    database: Database, listener: Listener
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.outbox.flush()
        assert not await told(listener)
        await uow.commit()

        assert await told(listener, SOON)


async def test_a_session_tells_after_its_commit(database: Database, listener: Listener) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(topic="greetings", payload={})
        await session.commit()

        assert await told(listener, SOON)


async def test_a_connection_tells_when_it_is_given_back(
    database: Database, listener: Listener
) -> None:
    async with database.engine.connect() as connection:
        await SqlAlchemyOutbox(connection).add(topic="greetings", payload={})
        assert not await told(listener)
        await connection.commit()

    assert await told(listener, SOON)


async def test_a_connection_that_is_kept_tells_of_its_commit_when_it_begins_anew(
    database: Database, listener: Listener
) -> None:
    async with database.engine.connect() as connection:
        await SqlAlchemyOutbox(connection).add(topic="greetings", payload={})
        await connection.commit()
        await connection.begin()

        assert await told(listener, SOON)


async def test_a_begin_block_on_a_connection_tells(database: Database, listener: Listener) -> None:
    async with database.engine.begin() as connection:
        await SqlAlchemyOutbox(connection).add(topic="greetings", payload={})

    assert await told(listener, SOON)


async def test_a_rollback_tells_nobody(database: Database, listener: Listener) -> None:
    async with database.sessions() as session, database.engine.connect() as connection:
        await SqlAlchemyOutbox(session).add(topic="greetings", payload={})
        await SqlAlchemyOutbox(session).flush()
        await session.rollback()
        await SqlAlchemyOutbox(connection).add(topic="greetings", payload={})
        await SqlAlchemyOutbox(connection).flush()
        await connection.rollback()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))

    assert not await told(listener)


async def test_a_commit_without_events_tells_nobody(database: Database, listener: Listener) -> None:
    async with database.sessions() as session:
        session.add(Order(id="o-1"))
        await session.commit()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.commit()

    assert not await told(listener)


async def test_a_commit_that_fails_tells_nobody(database: Database, listener: Listener) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.session.add(Order.place("o-1"))
        uow.session.add(Order(id="o-2", total=-1))
        with pytest.raises(IntegrityError):
            await uow.commit()
    if database.is_postgres:
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            uow.session.add(Order.place("o-3"))
            uow.session.add(Line(id="l-1", order_id="no such order"))
            with pytest.raises(IntegrityError):
                await uow.commit()

    assert not await told(listener)


async def test_a_released_savepoint_tells_nobody_before_the_commit(
    database: Database, listener: Listener
) -> None:
    async with database.sessions() as session:
        async with session.begin_nested():
            await SqlAlchemyOutbox(session).add(topic="greetings", payload={})
            await SqlAlchemyOutbox(session).flush()
        assert not await told(listener)
        await session.commit()

        assert await told(listener, SOON)


@pytest.mark.parametrize("by", ["session", "connection"])
async def test_whoever_is_told_sees_the_event_over_another_connection(
    database: Database, listener: Listener, by: str
) -> None:
    async def record() -> None:
        open_target = database.sessions if by == "session" else database.engine.connect
        async with open_target() as target:
            await SqlAlchemyOutbox(target).add(topic="greetings", payload={})
            await target.commit()

    async with database.other_engine() as observer, observer.connect() as connection:
        for expected in range(1, 11):
            writer = asyncio.create_task(record())
            assert await told(listener, SOON)
            seen = await connection.exec_driver_sql("SELECT count(*) FROM outbox")
            assert seen.scalar_one() >= expected
            await connection.rollback()
            await writer


async def test_a_signal_that_came_before_the_wait_is_kept_and_counts_once(
    database: Database, listener: Listener
) -> None:
    for number in range(3):
        async with database.sessions() as session:
            await SqlAlchemyOutbox(session).add(topic="greetings", payload={"n": number})
            await session.commit()

    assert await told(listener, SOON)
    assert not await told(listener)


async def test_every_listener_is_told_and_none_after_it_left(database: Database) -> None:
    wakeup = wakeup_of(database.engine)
    with wakeup.listen() as first, wakeup.listen() as second:
        wakeup.tell()

        assert await told(first)
        assert await told(second)
    wakeup.tell()
    assert not await told(first)


async def test_an_engine_with_other_options_shares_the_wakeup_of_its_engine(
    database: Database,
) -> None:
    derived = database.engine.execution_options(some_option=1)
    with wakeup_of(database.engine).listen() as listener:
        async with AsyncSession(derived) as session:
            await SqlAlchemyOutbox(session).add(topic="greetings", payload={})
            await session.commit()

        assert await told(listener, SOON)


async def test_a_sync_thread_tells_a_listener_of_the_loop(database: Database) -> None:
    def session_in_thread() -> None:
        with Session(engine) as session:
            SyncSqlAlchemyOutbox(session).add(topic="greetings", payload={})
            session.commit()

    def connection_in_thread() -> None:
        with engine.begin() as connection:
            SyncSqlAlchemyOutbox(connection).add(topic="greetings", payload={})

    with database.sync_engine() as engine, wakeup_of(engine).listen() as listener:
        for write in (session_in_thread, connection_in_thread):
            await asyncio.to_thread(write)

            assert await told(listener, SOON)
