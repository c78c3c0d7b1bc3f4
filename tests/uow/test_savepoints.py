"""What happened inside a savepoint that rolled back did not happen; what was released did."""

from contextlib import suppress

import pytest
from sqlalchemy.exc import IntegrityError

from pillarbox import SQLAlchemyUnitOfWork
from tests.support.database import Database
from tests.support.orders import Order, Plan


class Undo(Exception):
    """Raised inside a savepoint to roll it back."""


@pytest.fixture(autouse=True)
async def an_order(database: Database) -> None:
    async with database.sessions.begin() as session:
        session.add(Order(id="o-1"))


async def words(database: Database) -> list[str]:
    """Read which notes were recorded, in their order."""
    return [record.payload["text"] for record in await database.events()]


async def test_events_of_a_rolled_back_savepoint_are_not_recorded(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("before")
        with suppress(Undo):
            async with uow.savepoint():
                order.note("inside")
                uow.session.add(Order.place("o-2"))
                raise Undo
        order.note("after")
        await uow.commit()

    assert await words(database) == ["before", "after"]
    assert [r.event_number for r in await database.events()] == [1, 2]
    assert await database.order_ids() == ["o-1"]


async def test_events_of_a_flushed_and_rolled_back_savepoint_are_not_recorded(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        with suppress(Undo):
            async with uow.savepoint():
                order.confirm()
                uow.session.add(Order.place("o-2"))
                await uow.session.flush()
                raise Undo
        order.note("after")
        await uow.commit()

    [record] = await database.events()
    assert (record.payload, record.aggregate_version) == ({"text": "after"}, 2)
    assert await database.versions() == {"o-1": 2}


async def test_events_of_a_released_savepoint_are_recorded(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        async with uow.savepoint():
            order.note("inside")
            await uow.outbox.add(topic="manual", payload={"text": "by hand"})
            uow.session.add(Order(id="o-2"))
        await uow.commit()

    assert await words(database) == ["inside", "by hand"]
    assert await database.order_ids() == ["o-1", "o-2"]


async def test_manual_adds_of_a_rolled_back_savepoint_are_not_recorded(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="manual", payload={"text": "before"})
        with suppress(Undo):
            async with uow.savepoint():
                await uow.outbox.add(topic="manual", payload={"text": "inside"})
                raise Undo
        await uow.outbox.add(topic="manual", payload={"text": "after"})
        await uow.commit()

    assert await words(database) == ["before", "after"]


async def test_plain_objects_forget_what_they_raised_in_a_rolled_back_savepoint(
    database: Database,
) -> None:
    known, tracked_inside = Plan("p-1"), Plan("p-2")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(known)
        known.note("before")
        with suppress(Undo):
            async with uow.savepoint():
                known.note("inside")
                tracked_inside.note("inside too")
                uow.track(tracked_inside)
                raise Undo
        known.note("after")
        await uow.commit()

    assert await words(database) == ["before", "after"]


async def test_an_inner_rollback_leaves_the_outer_savepoint_alone(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        async with uow.savepoint():
            order.note("outer")
            await uow.outbox.add(topic="manual", payload={"text": "outer by hand"})
            with suppress(Undo):
                async with uow.savepoint():
                    order.note("inner")
                    await uow.outbox.add(topic="manual", payload={"text": "inner by hand"})
                    raise Undo
            order.note("outer again")
        await uow.commit()

    assert await words(database) == ["outer", "outer by hand", "outer again"]


async def test_an_outer_rollback_undoes_a_released_inner_savepoint(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("before")
        with suppress(Undo):
            async with uow.savepoint():
                async with uow.savepoint():
                    order.note("inner")
                    await uow.outbox.add(topic="manual", payload={"text": "inner by hand"})
                raise Undo
        await uow.commit()

    assert await words(database) == ["before"]


async def test_a_failed_flush_inside_a_savepoint_undoes_its_events_alone(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        order.note("before")
        with suppress(IntegrityError):
            async with uow.savepoint():
                order.note("inside")
                uow.session.add(Order(id="o-2", total=-1))
        order.note("after")
        await uow.commit()

    assert await words(database) == ["before", "after"]


async def test_an_early_write_inside_a_rolled_back_savepoint_is_undone_with_it(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        with suppress(Undo):
            async with uow.savepoint():
                await uow.outbox.add(topic="manual", payload={"text": "inside"})
                await uow.outbox.flush()
                raise Undo
        await uow.outbox.add(topic="manual", payload={"text": "after"})
        await uow.commit()

    assert await words(database) == ["after"]


async def test_an_early_write_inside_a_rolled_back_savepoint_loses_nothing_of_before(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        plan = Plan("p-1")
        uow.track(plan)
        plan.note("raised before")
        await uow.outbox.add(topic="manual", payload={"text": "added before"})
        with suppress(Undo):
            async with uow.savepoint():
                await uow.outbox.flush()
                raise Undo
        await uow.commit()

    assert await words(database) == ["raised before", "added before"]


async def test_an_add_after_an_early_write_inside_a_savepoint_is_undone_with_it(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.outbox.add(topic="manual", payload={"text": "before"})
        with suppress(Undo):
            async with uow.savepoint():
                await uow.outbox.flush()
                await uow.outbox.add(topic="manual", payload={"text": "inside"})
                raise Undo
        await uow.commit()

    assert await words(database) == ["before"]


async def test_versions_written_early_in_a_rolled_back_savepoint_are_raised_anew(
    database: Database,
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        with suppress(Undo):
            async with uow.savepoint():
                order.note("inside")
                await uow.outbox.flush()
                raise Undo
        order.note("after")
        await uow.commit()

    [record] = await database.events()
    assert (record.payload, record.aggregate_version, record.event_number) == (
        {"text": "after"},
        2,
        1,
    )
    assert await database.versions() == {"o-1": 2}


async def test_a_commit_from_inside_a_savepoint_releases_it(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        order = await uow.session.get_one(Order, "o-1")
        await uow.session.begin_nested()
        order.note("inside")
        await uow.commit()

    assert await words(database) == ["inside"]
