"""One call makes any sessionmaker collect events; the others are left alone."""

import gc
import pickle
from contextlib import suppress

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from pillarbox import SQLAlchemyUnitOfWork, collect_events, correlation
from pillarbox.outbox.settings import CaptureSettings
from tests.support.database import Database, on, on_sync
from tests.support.orders import Noted, Order


class Undo(Exception):
    """Raised inside a savepoint to roll it back."""


async def test_an_async_sessionmaker_records_with_a_plain_commit(database: Database) -> None:
    collect_events(database.sessions, service="shop")

    async with database.sessions() as session:
        session.add(Order.place("o-1"))
        await session.commit()
        (await session.get_one(Order, "o-1")).confirm()
        await session.commit()

    records = await database.events()
    assert [(r.event_type, r.topic, r.aggregate_version) for r in records] == [
        ("OrderPlaced", "shop.order", 1),
        ("OrderConfirmed", "shop.order", 2),
    ]


async def test_a_begin_block_records(database: Database) -> None:
    collect_events(database.sessions)

    async with database.sessions.begin() as session:
        session.add(Order.place("o-1"))

    assert await database.event_types() == ["OrderPlaced"]


async def test_an_aggregate_merely_loaded_and_dropped_is_recorded(database: Database) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    collect_events(database.sessions)

    async with database.sessions() as session:
        (await session.scalars(select(Order))).one().note("and away")
        gc.collect()
        await session.commit()

    assert await database.event_types() == ["Noted"]
    assert await database.versions() == {"o-1": 2}


async def test_a_rollback_and_a_rolled_back_savepoint_record_nothing(database: Database) -> None:
    collect_events(database.sessions)

    async with database.sessions() as session:
        session.add(Order.place("o-1"))
        await session.rollback()
        session.add(Order.place("o-2"))
        with suppress(Undo):
            async with session.begin_nested():
                session.add(Order.place("o-3"))
                raise Undo
        await session.commit()

    assert [record.key for record in await database.events()] == ["o-2"]


async def test_a_sessionmaker_that_was_not_asked_to_collect_records_nothing(
    database: Database,
) -> None:
    other = async_sessionmaker(database.engine)
    collect_events(database.sessions)

    async with other() as session:
        session.add(Order.place("o-1"))
        await session.commit()

    assert await database.count() == 0
    assert await database.order_ids() == ["o-1"]


async def test_the_info_of_a_sessionmaker_is_kept(database: Database) -> None:
    factory = async_sessionmaker(database.engine, info={"mine": 1})
    collect_events(factory)

    async with factory() as first, factory() as second:
        first.info["mine"] = 2

        assert second.info["mine"] == 1


async def test_collecting_twice_is_harmless(database: Database) -> None:
    collect_events(database.sessions)
    collect_events(database.sessions, settings=CaptureSettings(service="second"))

    async with database.sessions.begin() as session:
        session.add(Order.place("o-1"))

    assert [record.topic for record in await database.events()] == ["second.order"]


async def test_a_unit_of_work_on_a_collecting_sessionmaker_records_once(
    database: Database,
) -> None:
    collect_events(database.sessions, service="shop")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    assert [record.topic for record in await database.events()] == ["shop.order"]


async def test_the_context_of_the_raising_is_carried(database: Database) -> None:
    collect_events(database.sessions)

    async with database.sessions.begin() as session:
        with correlation("c-1"):
            session.add(Order.place("o-1"))

    [record] = await database.events()
    assert record.event_metadata == {"correlationid": "c-1"}


@on_sync
async def test_a_sync_sessionmaker_records_with_a_plain_commit(database: Database) -> None:
    with database.sync_engine() as engine:
        factory = sessionmaker(engine)
        collect_events(factory, service="shop")
        with factory() as session:
            session.add(Order.place("o-1"))
            session.commit()
            session.get_one(Order, "o-1").confirm()
            session.rollback()
            session.get_one(Order, "o-1").note("stays")
            session.commit()

    records = await database.events()
    assert [(r.event_type, r.topic, r.aggregate_version) for r in records] == [
        ("OrderPlaced", "shop.order", 1),
        ("Noted", "shop.note", 2),
    ]


@on_sync
async def test_a_sync_session_that_fails_to_commit_records_nothing(database: Database) -> None:
    with database.sync_engine() as engine:
        factory = sessionmaker(engine)
        collect_events(factory)
        with factory() as session:
            session.add_all([Order.place("o-1"), Order(id="o-2", total=-1)])
            with pytest.raises(IntegrityError):
                session.commit()

    assert await database.count() == 0
    assert await database.order_ids() == []


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_an_aggregate_that_a_session_watches_can_be_pickled(
    database: Database,
) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    collect_events(database.sessions)

    async with database.sessions() as session:
        order = await session.get_one(Order, "o-1")
        order.add_event(Noted("waits"))
        thawed = pickle.loads(pickle.dumps(order))  # noqa: S301 - our own bytes

    assert thawed.id == "o-1"
    assert thawed.pending_events == (Noted("waits"),)


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_an_aggregate_that_left_its_session_does_not_trouble_the_next_commit(
    database: Database,
) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    collect_events(database.sessions)

    async with database.sessions() as session:
        left = await session.get_one(Order, "o-1")
        await session.close()
        left.note("raised outside of any session")
        session.add(Order.place("o-2"))
        await session.commit()

    assert await database.event_types() == ["OrderPlaced"]
