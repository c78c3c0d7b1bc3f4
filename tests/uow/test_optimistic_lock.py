"""A stale aggregate is refused with `StaleDataError`, and nothing of its transaction remains."""

import pytest
from sqlalchemy import update
from sqlalchemy.orm.exc import StaleDataError

from pillarbox import SQLAlchemyUnitOfWork
from tests.support.database import Database
from tests.support.orders import Order


@pytest.fixture(autouse=True)
async def an_order(database: Database) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))


async def overtake(database: Database) -> None:
    """Commit another version of the order."""
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("overtaken")
        await uow.commit()


async def detached(database: Database) -> Order:
    async with database.sessions() as session:
        return await session.get_one(Order, "o-1")


async def test_the_second_writer_of_a_version_is_refused(database: Database) -> None:
    order = await detached(database)
    await overtake(database)

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        order.confirm()
        uow.session.add(Order.place("o-2"))
        with pytest.raises(StaleDataError):
            await uow.commit()

    assert [record.payload for record in await database.events()] == [{"text": "overtaken"}]
    assert await database.versions() == {"o-1": 2}


async def test_a_stale_aggregate_is_refused_even_if_it_only_raised_events(
    database: Database,
) -> None:
    order = await detached(database)
    await overtake(database)

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        order.note("too late")
        with pytest.raises(StaleDataError):
            await uow.commit()

    assert [record.payload for record in await database.events()] == [{"text": "overtaken"}]


async def test_a_deleted_aggregate_that_raises_is_refused(database: Database) -> None:
    order = await detached(database)
    async with database.sessions.begin() as session:
        await session.delete(await session.get_one(Order, "o-1"))

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        order.note("ghost")
        with pytest.raises(StaleDataError):
            await uow.commit()

    assert await database.count() == 0


async def test_after_a_conflict_the_unit_of_work_is_rolled_back_by_the_end_of_its_block(
    database: Database,
) -> None:
    order = await detached(database)
    await overtake(database)

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.session.execute(update(Order).values(status="SEEN"))
        uow.session.add(Order.place("o-3"))
        await uow.session.flush()
        await uow.repository(Order).save(order)
        order.note("too late")
        with pytest.raises(StaleDataError):
            await uow.commit()

    assert await database.order_ids() == ["o-1"]
    assert await database.scalar("SELECT status FROM orders") == "NEW"


async def test_a_conflict_is_solved_by_loading_again(database: Database) -> None:
    order = await detached(database)
    await overtake(database)
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        order.confirm()
        with pytest.raises(StaleDataError):
            await uow.commit()

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        fresh = await uow.session.get_one(Order, "o-1")
        fresh.confirm()
        await uow.commit()

    records = await database.events()
    assert [(r.event_type, r.aggregate_version) for r in records] == [
        ("Noted", 2),
        ("OrderConfirmed", 3),
    ]
