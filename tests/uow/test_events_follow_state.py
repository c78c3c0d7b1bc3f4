"""After a rollback an event stays with its aggregate exactly when the aggregate keeps its state."""

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Engine, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError, SAWarning
from sqlalchemy.orm import Mapper, Session, sessionmaker

from pillarbox import (
    OutboxRecord,
    SQLAlchemyUnitOfWork,
    SyncSqlAlchemyOutbox,
    collect_events,
)
from pillarbox.errors import TenantRequired, UnitOfWorkError
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on, on_sync
from tests.support.orders import Base, Order


@pytest.fixture
def sessions(database: Database) -> Iterator[sessionmaker[Session]]:
    with database.sync_engine() as engine:
        factory = sessionmaker(engine)
        collect_events(factory)
        with factory() as session:
            session.add(Order(id="o-1", total=1))
            session.commit()
        yield factory


def words(sessions: sessionmaker[Session]) -> list[str]:
    with sessions() as session:
        found = session.scalars(select(OutboxRecord).order_by(OutboxRecord.seq))
        return [record.payload["text"] for record in found]


@on_sync
def test_an_event_raised_before_its_transaction_goes_with_the_rollback(
    sessions: sessionmaker[Session],
) -> None:
    with sessions() as session:
        order = session.get_one(Order, "o-1")
        session.commit()
        order.note("undone")
        session.rollback()
        order.note("done")
        session.commit()

    assert words(sessions) == ["done"]


@on_sync
def test_an_aggregate_that_a_close_leaves_changed_keeps_its_event(
    sessions: sessionmaker[Session],
) -> None:
    with sessions() as session:
        order = session.get_one(Order, "o-1")
        order.total = 7
        order.note("changed")

    with sessions() as session:
        session.add(order)
        session.commit()

    assert words(sessions) == ["changed"]


@on_sync
def test_a_new_aggregate_of_a_rolled_back_savepoint_that_is_added_again_keeps_its_event(
    sessions: sessionmaker[Session],
) -> None:
    with sessions() as session:
        savepoint = session.begin_nested()
        order = Order(id="o-2", total=1)
        order.note("new")
        session.add(order)
        session.flush()
        savepoint.rollback()
        session.add(order)
        session.commit()

    assert words(sessions) == ["new"]


@on_sync
def test_a_savepoint_that_is_closed_takes_its_events_along(sessions: sessionmaker[Session]) -> None:
    with sessions() as session:
        savepoint = session.begin_nested()
        SyncSqlAlchemyOutbox(session).add(topic="t.t", payload={"text": "undone"})
        savepoint.close()
        SyncSqlAlchemyOutbox(session).add(topic="t.t", payload={"text": "done"})
        session.commit()

    assert words(sessions) == ["done"]


@on_sync
def test_an_event_raised_by_a_hook_of_the_last_flush_is_recorded(
    sessions: sessionmaker[Session],
) -> None:
    with sessions() as session:
        session.add(Order(id="o-2", total=1))
        session.commit()
        first, second = session.get_one(Order, "o-1"), session.get_one(Order, "o-2")

        def raise_another(mapper: Mapper[Order], connection: object, target: Order) -> None:
            if target is first:
                second.note("from the hook")

        event.listen(Order, "before_update", raise_another)
        try:
            first.note("first")
            session.commit()
        finally:
            event.remove(Order, "before_update", raise_another)

    assert words(sessions) == ["first", "from the hook"]


@on_sync
def test_an_aggregate_does_not_keep_its_session_alive(sessions: sessionmaker[Session]) -> None:
    session = sessions()
    order = session.get_one(Order, "o-1")
    bind = session.get_bind()
    assert isinstance(bind, Engine)

    del session
    gc.collect()

    assert order.id == "o-1"
    assert bind.pool.status().endswith("Current Checked out connections: 0")


@on_sync
def test_an_aggregate_of_another_database_than_the_outbox_is_refused(
    sessions: sessionmaker[Session],
) -> None:
    elsewhere = create_engine("sqlite://")
    Base.metadata.create_all(elsewhere)
    try:
        with sessions(binds={Order: elsewhere}) as session:
            session.add(Order.place("o-2"))
            with pytest.raises(UnitOfWorkError, match="stored in another database"):
                session.commit()
    finally:
        elsewhere.dispose()

    assert words(sessions) == []


@on("postgres18+asyncpg", "postgres18+psycopg")
async def test_a_transaction_that_was_aborted_is_not_reported_as_committed(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="t.t", payload={})
        await uow.outbox.flush()
        with pytest.raises(DBAPIError):
            await uow.session.execute(text("SELECT 1 / 0"))

        with pytest.raises(DBAPIError):
            await uow.commit()

    assert await database.count() == 0


@on_sync
def test_a_connection_that_rolls_an_outer_savepoint_back_forgets_what_it_holds(
    sessions: sessionmaker[Session],
) -> None:
    engine = sessions.kw["bind"]
    with engine.connect() as connection, connection.begin():
        outbox = SyncSqlAlchemyOutbox(connection)
        outbox.add(topic="t.t", payload={"text": "before"})
        left_open = pytest.warns(SAWarning, match="already deassociated")  # the inner one
        with left_open, suppress(ValueError), connection.begin_nested():
            outbox.add(topic="t.t", payload={"text": "undone"})
            connection.begin_nested()
            raise ValueError

    assert words(sessions) == ["before"]


@on("postgres18+psycopg")
def test_a_two_phase_transaction_of_a_connection_records_if_and_only_if_it_commits(
    sessions: sessionmaker[Session], database: Database
) -> None:
    engine = sessions.kw["bind"]
    with engine.connect() as connection:
        outbox = SyncSqlAlchemyOutbox(connection)
        undone = connection.begin_twophase()
        outbox.add(topic="t.t", payload={"text": "undone"})
        undone.rollback()
        done = connection.begin_twophase()
        outbox.add(topic="t.t", payload={"text": "done"})
        done.commit()

        assert words(sessions) == ["done"]


@on("postgres18+asyncpg")
async def test_a_transaction_id_is_forgotten_when_the_next_transaction_begins(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="t.t", payload={})
        await uow.session.commit()
        assert uow._capture is not None
        first = uow._capture.transaction_id

        await uow.session.execute(text("SELECT 1"))

        assert first is not None
        assert uow._capture.transaction_id is None


@on("postgres18+asyncpg")
async def test_a_session_that_served_another_tenant_before_does_not_keep_it(
    database: Database,
) -> None:
    settings = CaptureSettings(tenancy=Tenancy(required=True))
    session = database.sessions()
    try:
        async with SQLAlchemyUnitOfWork(lambda: session, tenant_id="acme", settings=settings):
            pass
        async with SQLAlchemyUnitOfWork(lambda: session, settings=settings) as uow:
            with pytest.raises(TenantRequired):
                await uow.outbox.add(topic="t.t", payload={})
    finally:
        await session.close()
