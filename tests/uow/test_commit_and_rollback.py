"""A unit of work commits when it is told to, and rolls back otherwise."""

from contextlib import suppress

from pillarbox import SQLAlchemyUnitOfWork
from tests.support.database import Database
from tests.support.orders import Order


async def test_a_commit_records_the_row_and_its_event_together(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_leaving_without_a_commit_rolls_back(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.session.flush()

    assert await database.order_ids() == []
    assert await database.count() == 0


async def test_an_exception_in_the_block_rolls_back(database: Database) -> None:
    with suppress(ZeroDivisionError):
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
            raise ZeroDivisionError

    assert await database.order_ids() == []
    assert await database.count() == 0


async def test_an_explicit_rollback_undoes_rows_and_events(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.rollback()

    assert await database.order_ids() == []
    assert await database.count() == 0


async def test_a_commit_without_events_commits_the_rows(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.session.add(Order(id="o-1"))
        await uow.commit()

    assert await database.order_ids() == ["o-1"]
    assert await database.count() == 0


async def test_the_sample_of_the_requirements_runs_as_written(database: Database) -> None:
    session_factory = database.sessions

    async with SQLAlchemyUnitOfWork(session_factory) as uow:
        order = Order.place("o-1")
        await uow.repository(Order).save(order)
        uow.track(order)
        await uow.commit()

    assert await database.event_types() == ["OrderPlaced"]


async def test_tracking_an_aggregate_again_and_again_is_harmless(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = Order.place("o-1")
        uow.track(order)
        await uow.repository(Order).save(order)
        uow.track(order)
        uow.track(order)
        await uow.commit()

    assert await database.event_types() == ["OrderPlaced"]


async def test_the_outbox_of_a_unit_of_work_shares_its_transaction(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="greetings", payload={"hello": 1})
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="greetings", payload={"hello": 2})

    assert await database.event_types() == ["greetings", "OrderPlaced"]


async def test_an_event_of_a_committed_aggregate_is_recorded_once_only(database: Database) -> None:
    order = Order.place("o-1")
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        await uow.commit()

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(order)
        order.confirm()
        await uow.commit()

    assert order.pending_events == ()
    assert await database.event_types() == ["OrderPlaced", "OrderConfirmed"]
