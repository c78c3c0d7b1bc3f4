"""A unit of work outside its life says so, clearly, and does nothing."""

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.errors import InvalidConfig, NoActiveUnitOfWork, UnitOfWorkError
from tests.support.database import Database, on
from tests.support.orders import Order, Plan

pytestmark = on("postgres18+asyncpg", "sqlite+aiosqlite")


async def test_before_it_is_entered_it_has_no_session(database: Database) -> None:
    uow = SQLAlchemyUnitOfWork(database.sessions)

    with pytest.raises(NoActiveUnitOfWork, match="not entered"):
        uow.session  # noqa: B018 - the access is the act
    with pytest.raises(NoActiveUnitOfWork, match="not entered"):
        uow.track(Plan("p-1"))
    with pytest.raises(NoActiveUnitOfWork, match="not entered"):
        await uow.commit()


async def test_a_second_commit_is_refused(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

        with pytest.raises(NoActiveUnitOfWork, match="committed; make a new one"):
            await uow.commit()


async def test_work_after_the_commit_is_refused(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.commit()

        with pytest.raises(NoActiveUnitOfWork, match="committed"):
            uow.track(Plan("p-1"))
        with pytest.raises(NoActiveUnitOfWork, match="committed"):
            uow.repository(Order)
        with pytest.raises(NoActiveUnitOfWork, match="committed"):
            uow.outbox  # noqa: B018 - the access is the act
        with pytest.raises(NoActiveUnitOfWork, match="committed"):
            await uow.rollback()


async def test_work_after_a_rollback_is_refused(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.rollback()

        with pytest.raises(NoActiveUnitOfWork, match="rolled back"):
            await uow.commit()


async def test_work_after_the_block_is_refused(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        pass

    with pytest.raises(NoActiveUnitOfWork, match="left its block"):
        await uow.commit()
    with pytest.raises(NoActiveUnitOfWork, match="left its block"):
        uow.track(Plan("p-1"))


async def test_a_unit_of_work_serves_once(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        with pytest.raises(UnitOfWorkError, match="serves once"):
            await uow.__aenter__()
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    with pytest.raises(UnitOfWorkError, match="serves once"):
        await uow.__aenter__()
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_session_closed_under_it_makes_the_commit_fail(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.session.close()

        with pytest.raises(UnitOfWorkError, match="closed"):
            await uow.commit()

    assert await database.order_ids() == []
    assert await database.count() == 0


async def test_the_session_points_back_to_its_unit_of_work(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        assert uow.session.info["uow"] is uow
        assert uow.session.sync_session.info["uow"] is uow


async def test_two_units_of_work_do_not_share_a_session_or_its_info(database: Database) -> None:
    async with (
        SQLAlchemyUnitOfWork(database.sessions) as first,
        SQLAlchemyUnitOfWork(database.sessions) as second,
    ):
        assert first.session is not second.session
        assert first.session.info["uow"] is first
        assert second.session.info["uow"] is second


async def test_a_nested_unit_of_work_is_a_transaction_of_its_own(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as outer:
        outer.track(Plan("p-1"))
        async with SQLAlchemyUnitOfWork(database.sessions) as inner:
            await inner.repository(Order).save(Order.place("o-1"))
            await inner.commit()

    assert await database.event_types() == ["OrderPlaced"]


async def test_a_sync_sessionmaker_is_refused_with_the_remedy(database: Database) -> None:
    factory = sessionmaker(create_engine("sqlite://"))
    uow = SQLAlchemyUnitOfWork(factory)  # type: ignore[arg-type] # the mistake under test

    with pytest.raises(InvalidConfig, match="use an async_sessionmaker"):
        await uow.__aenter__()


async def test_tracking_something_that_is_no_aggregate_is_refused(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        with pytest.raises(UnitOfWorkError, match="derive its class from AggregateRoot"):
            uow.track(object())  # type: ignore[arg-type] # the mistake under test


async def test_a_class_without_a_repository_is_refused_with_the_remedy(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        with pytest.raises(InvalidConfig, match=r"pass repositories=\{Plan: …\}"):
            uow.repository(Plan)


async def test_a_tracked_mapped_aggregate_outside_the_session_is_refused(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(Order.place("o-1"))

        with pytest.raises(UnitOfWorkError, match="not in the session that commits"):
            await uow.commit()

    assert await database.order_ids() == []
    assert await database.count() == 0
