"""The events of every aggregate that a unit of work meets are recorded, once, in order."""

import gc
from uuid import UUID

import pytest
from sqlalchemy import select

from pillarbox import SQLAlchemyUnitOfWork
from tests.support.database import Database
from tests.support.orders import Basket, Noted, Order, Plan


@pytest.fixture(autouse=True)
async def an_order(database: Database) -> None:
    """An order that is there already, at version 1."""
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))


async def test_a_new_aggregate(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.session.add(Order.place("o-2"))
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_type, record.aggregate_id) == (
        "OrderPlaced",
        "Order",
        "o-2",
    )
    assert (record.key, record.aggregate_version, record.event_number) == ("o-2", 1, 1)
    assert record.payload == {"order_id": "o-2", "total": 10}
    assert (record.topic, record.status) == ("default.order", "NEW")


async def test_a_new_aggregate_whose_id_the_database_makes(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        basket = Basket(item="apple")
        basket.add_event(Noted("filled"))
        uow.session.add(basket)
        await uow.commit()

    [record] = await database.events()
    assert record.aggregate_id == record.key == str(basket.id)
    assert (record.aggregate_version, record.event_number) == (None, 1)


async def test_a_changed_aggregate(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.repository(Order).get("o-1")
        assert order is not None
        order.confirm()
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_version) == ("OrderConfirmed", 2)
    assert await database.versions() == {"o-1": 2}


async def test_a_deleted_aggregate(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.cancel()
        await uow.repository(Order).delete(order)
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_id) == ("OrderCancelled", "o-1")
    assert record.aggregate_version == 2
    assert await database.order_ids() == []


async def test_an_aggregate_that_raises_after_its_deletion_was_flushed(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        await uow.session.delete(order)
        await uow.session.flush()
        order.add_event(Noted("gone"))
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_version) == ("Noted", 2)


async def test_an_aggregate_that_was_merely_loaded_gets_a_new_version(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = (await uow.session.scalars(select(Order))).one()
        order.note("looked at")
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_version) == ("Noted", 2)
    assert await database.versions() == {"o-1": 2}


async def test_an_aggregate_to_which_the_caller_dropped_his_reference(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        (await uow.session.get_one(Order, "o-1")).note("and away")
        gc.collect()
        await uow.commit()

    assert await database.event_types() == ["Noted"]


async def test_an_aggregate_refreshed_in_between_keeps_its_event(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("before")
        await uow.session.refresh(order)
        uow.session.expire(order)
        await uow.session.refresh(order)
        await uow.commit()

    [record] = await database.events()
    assert record.aggregate_version == 2


async def test_an_aggregate_that_was_merged_from_another_session(database: Database) -> None:
    async with database.sessions() as session:
        detached = await session.get_one(Order, "o-1")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        merged = await uow.session.merge(detached)
        merged.confirm()
        await uow.commit()

    [record] = await database.events()
    assert (record.event_type, record.aggregate_version) == ("OrderConfirmed", 2)


async def test_a_detached_aggregate_that_raised_before_it_was_saved(database: Database) -> None:
    async with database.sessions() as session:
        order = await session.get_one(Order, "o-1")
    order.confirm()

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    assert await database.event_types() == ["OrderConfirmed"]
    assert await database.versions() == {"o-1": 2}


async def test_events_raised_between_an_autoflush_and_the_commit(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.confirm()
        await uow.session.scalars(select(Order))
        order.note("after the autoflush")
        await uow.commit()

    records = await database.events()
    assert [(r.event_type, r.aggregate_version, r.event_number) for r in records] == [
        ("OrderConfirmed", 2, 1),
        ("Noted", 2, 2),
    ]
    assert await database.versions() == {"o-1": 2}


async def test_an_event_alone_after_an_autoflush_of_a_new_aggregate(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = Order(id="o-2")
        uow.session.add(order)
        await uow.session.flush()
        order.note("placed")
        await uow.commit()

    [record] = await database.events()
    assert (record.aggregate_version, record.event_number) == (1, 1)


async def test_several_events_are_numbered_within_the_version(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = Order.place("o-2")
        await uow.repository(Order).save(order)
        order.confirm()
        order.note("third")
        await uow.commit()

    records = await database.events()
    assert [(r.event_type, r.aggregate_version, r.event_number) for r in records] == [
        ("OrderPlaced", 1, 1),
        ("OrderConfirmed", 1, 2),
        ("Noted", 1, 3),
    ]


async def test_rows_of_several_aggregates_stand_in_the_order_of_raising(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        first, second, plan = Order(id="z"), Order(id="a"), Plan("m")
        uow.session.add_all([second, first])
        uow.track(plan)
        for turn in range(3):
            first.note(f"first {turn}")
            await uow.outbox.add(topic="manual", payload={"turn": turn}, key="k")
            plan.note(f"plan {turn}")
            second.note(f"second {turn}")
        await uow.commit()

    records = await database.events()
    assert [(r.key, r.event_number) for r in records] == [
        (key, None if key == "k" else turn) for turn in (1, 2, 3) for key in ("z", "k", "m", "a")
    ]


async def test_a_second_commit_of_the_same_aggregate_numbers_from_one_again(
    database: Database,
) -> None:
    for words in ("first", "second"):
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            order = await uow.session.get_one(Order, "o-1")
            order.note(words)
            await uow.commit()

    records = await database.events()
    assert [(r.aggregate_version, r.event_number) for r in records] == [(2, 1), (3, 1)]


async def test_a_row_flushed_early_is_not_written_again(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("one")
        await uow.outbox.flush()
        order.note("two")
        await uow.commit()

    records = await database.events()
    assert [(r.payload, r.aggregate_version, r.event_number) for r in records] == [
        ({"text": "one"}, 2, 1),
        ({"text": "two"}, 2, 2),
    ]


async def test_the_id_that_raising_returned_is_the_id_of_the_row(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        plan = Plan("p-1")
        event_id = plan.add_event(Noted("one"))
        uow.track(plan)
        await uow.commit()

    [record] = await database.events()
    assert isinstance(event_id, UUID)
    assert (record.id, event_id.version) == (event_id, 7)
