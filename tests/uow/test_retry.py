"""What fails can be done again: new work keeps its events and ids, undone work loses them."""

from contextlib import suppress

import pytest
from sqlalchemy.exc import IntegrityError

from pillarbox import SQLAlchemyUnitOfWork, collect_events
from pillarbox.errors import InvalidTopic
from tests.support.database import BACKENDS, Database, on
from tests.support.orders import Line, Noted, Order, Plan


async def test_a_new_aggregate_is_retried_with_the_same_event_id_after_a_failed_flush(
    database: Database,
) -> None:
    order = Order(id="o-1")
    event_id = order.add_event(Noted("once"))

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        uow.session.add(Order(id="o-2", total=-1))
        with pytest.raises(IntegrityError):
            await uow.commit()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    [record] = await database.events()
    assert (record.id, record.aggregate_version, record.event_number) == (event_id, 1, 1)
    assert await database.order_ids() == ["o-1"]


@on(*BACKENDS[:4])  # SQLite looks at foreign keys only when asked to
async def test_a_new_aggregate_is_retried_with_the_same_event_id_after_a_refused_commit(
    database: Database,
) -> None:
    order = Order(id="o-1")
    event_id = order.add_event(Noted("once"))

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        uow.session.add(Line(id="l-1", order_id="no such order"))
        with pytest.raises(IntegrityError):
            await uow.commit()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    [record] = await database.events()
    assert record.id == event_id
    assert await database.order_ids() == ["o-1"]


async def test_a_new_aggregate_is_retried_after_an_error_between_flush_and_commit(
    database: Database,
) -> None:
    order = Order(id="o-1")
    event_id = order.add_event(Noted("once"))

    with suppress(ZeroDivisionError):
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            await uow.repository(Order).save(order)
            await uow.session.flush()
            raise ZeroDivisionError
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    [record] = await database.events()
    assert record.id == event_id
    assert await database.order_ids() == ["o-1"]


async def test_a_new_aggregate_is_retried_after_a_refused_event(database: Database) -> None:
    order, plan = Order(id="o-1"), Plan("p-1")
    event_id = order.add_event(Noted("once"))
    plan.note("nowhere", topic="no topic * at all")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        uow.track(plan)
        with pytest.raises(InvalidTopic):
            await uow.commit()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    [record] = await database.events()
    assert record.id == event_id


async def test_a_plain_object_is_retried_with_the_same_event_id(database: Database) -> None:
    plan = Plan("p-1")
    event_id = plan.add_event(Noted("once"))

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.rollback()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    [record] = await database.events()
    assert record.id == event_id
    assert plan.pending_events == ()


async def test_a_loaded_aggregate_loses_its_events_with_its_changes(database: Database) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    collect_events(database.sessions)

    async with database.sessions() as session:
        order = await session.get_one(Order, "o-1")
        order.confirm()
        await session.flush()
        await session.rollback()
        await session.refresh(order)
        order.note("second thought")
        await session.commit()

    [record] = await database.events()
    assert record.event_type == "Noted"
    assert (record.aggregate_version, record.event_number) == (2, 1)
    assert order.status == "NEW"


async def test_a_session_used_again_after_a_failed_commit_records_nothing_stale(
    database: Database,
) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    collect_events(database.sessions)

    async with database.sessions() as session:
        order = await session.get_one(Order, "o-1")
        order.confirm()
        session.add(Order(id="o-2", total=-1))
        with pytest.raises(IntegrityError):
            await session.commit()
        await session.rollback()
        session.add(Order.place("o-3"))
        await session.commit()

    assert await database.event_types() == ["OrderPlaced"]


async def test_a_new_aggregate_added_again_after_a_rollback_is_recorded_once(
    database: Database,
) -> None:
    collect_events(database.sessions)

    async with database.sessions() as session:
        order = Order.place("o-1")
        session.add(order)
        await session.flush()
        await session.rollback()
        session.add(order)
        await session.commit()
        await session.commit()

    assert await database.event_types() == ["OrderPlaced"]


async def test_a_new_aggregate_that_is_given_up_records_nothing_later(database: Database) -> None:
    collect_events(database.sessions)

    async with database.sessions() as session:
        session.add(Order.place("o-1"))
        await session.flush()
        await session.rollback()
        session.add(Order.place("o-2"))
        await session.commit()

    assert [record.key for record in await database.events()] == ["o-2"]


async def test_a_detached_aggregate_saved_in_vain_is_not_recorded_without_its_change(
    database: Database,
) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))
    async with database.sessions() as session:
        order = await session.get_one(Order, "o-1")
    order.confirm()
    collect_events(database.sessions)

    async with database.sessions() as session:
        session.add(order)
        await session.flush()
        await session.rollback()
        await session.refresh(order)
        await session.commit()

    assert order.status == "NEW"
    assert await database.event_types() == []
