"""Units of work inside somebody's transaction join it: they arm, the owner commits."""

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import column, select, table
from sqlalchemy.exc import DBAPIError, IntegrityError

from pillarbox import SqlAlchemyOutbox, SQLAlchemyUnitOfWork, tenant
from pillarbox.errors import NoActiveUnitOfWork, TenantMismatch, UnitOfWorkError
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.outbox.wakeup import wakeup_of
from pillarbox.uow.joining import joined_transaction
from tests.support.database import Database, on
from tests.support.orders import Noted, Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


async def place(database: Database, order_id: str, *, independent: bool = False) -> None:
    """Place an order, as a command handler does that knows of no owner."""
    async with SQLAlchemyUnitOfWork(database.sessions, independent=independent) as uow:
        await uow.repository(Order).save(Order.place(order_id))
        await uow.commit()


async def test_the_same_handler_commits_alone_and_joins_a_transaction(database: Database) -> None:
    await place(database, "o-1")

    async with database.sessions() as session, joined_transaction(session) as running:
        await place(database, "o-2")
        assert running.armed == 1
        await session.commit()

    assert await database.order_ids() == ["o-1", "o-2"]
    assert await database.event_types() == ["OrderPlaced", "OrderPlaced"]


async def test_an_armed_unit_of_work_is_undone_with_its_owner(database: Database) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session):
            await place(database, "o-1")
        await session.rollback()

    assert await database.order_ids() == []
    assert await database.count() == 0


async def test_what_the_owner_wrote_commits_with_it(database: Database) -> None:
    async with database.sessions() as session:
        session.add(Order(id="o-0"))
        async with joined_transaction(session):
            await place(database, "o-1")
        await session.commit()

    assert await database.order_ids() == ["o-0", "o-1"]


@pytest.mark.parametrize("explicit", [True, False], ids=["rollback", "no commit"])
async def test_a_rollback_undoes_this_unit_of_work_alone(
    database: Database, explicit: bool
) -> None:
    async with database.sessions() as session:
        session.add(Order(id="o-0"))
        async with joined_transaction(session):
            await place(database, "o-1")
            async with SQLAlchemyUnitOfWork(database.sessions) as uow:
                await uow.repository(Order).save(Order.place("o-2"))
                await uow.session.flush()
                if explicit:
                    await uow.rollback()
        await session.commit()

    assert await database.order_ids() == ["o-0", "o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_caught_database_error_costs_only_its_unit_of_work(database: Database) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session):
            await place(database, "o-1")
            with pytest.raises(IntegrityError):
                await place(database, "o-1")
            await place(database, "o-2")
        await session.commit()

    assert await database.order_ids() == ["o-1", "o-2"]


async def test_an_exception_passes_through_the_owner(database: Database) -> None:
    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
            raise ZeroDivisionError

    async with database.sessions() as session:
        with pytest.raises(ZeroDivisionError):
            async with joined_transaction(session):
                await handle()
        await session.commit()

    assert await database.order_ids() == []


async def test_a_second_commit_is_refused(database: Database) -> None:
    async with (
        database.sessions() as session,
        joined_transaction(session),
        SQLAlchemyUnitOfWork(database.sessions) as uow,
    ):
        await uow.commit()

        with pytest.raises(NoActiveUnitOfWork, match="committed; make a new one"):
            await uow.commit()


async def test_an_unused_unit_of_work_around_another_undoes_nothing(database: Database) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions):
            await place(database, "o-1")
        await session.commit()

    assert await database.order_ids() == ["o-1"]


async def test_armed_work_that_is_undone_by_the_one_around_it_keeps_the_owner_from_committing(
    database: Database,
) -> None:
    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.repository(Order).save(Order.place("o-1"))
            await outer.session.flush()
            await place(database, "o-2")

    async with database.sessions() as session:
        with pytest.raises(UnitOfWorkError, match="both are undone"):
            async with joined_transaction(session):
                await handle()

    assert await database.order_ids() == []


async def test_armed_work_inside_a_reader_that_is_rolled_back_keeps_the_owner_from_committing(
    database: Database,
) -> None:
    """Nobody noted that it was gone: the owner committed the rest."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as reader:
            await reader.session.scalars(select(Order.id))
            await place(database, "o-1")
            await reader.rollback()

    async with database.sessions() as session:
        with pytest.raises(UnitOfWorkError, match="both are undone"):
            async with joined_transaction(session):
                await handle()

    assert await database.order_ids() == []


async def test_a_select_that_fails_costs_only_its_unit_of_work(database: Database) -> None:
    """The end of its savepoint failed too, and hid the error from the handler."""
    async with database.sessions() as session:
        session.add(Order(id="o-0"))
        async with joined_transaction(session):
            await place(database, "o-1")
            with pytest.raises(DBAPIError, match="no_such_table"):
                async with SQLAlchemyUnitOfWork(database.sessions) as reader:
                    await reader.session.execute(select(table("no_such_table", column("id"))))
            await place(database, "o-2")
        await session.commit()

    assert await database.order_ids() == ["o-0", "o-1", "o-2"]


async def test_units_of_work_end_as_a_stack_does(database: Database) -> None:
    async with database.sessions() as session:
        async with (
            joined_transaction(session),
            SQLAlchemyUnitOfWork(database.sessions) as outer,
            SQLAlchemyUnitOfWork(database.sessions) as inner,
        ):
            await outer.repository(Order).save(Order.place("o-1"))
            await outer.session.flush()
            await inner.repository(Order).save(Order.place("o-2"))
            await inner.session.flush()

            with pytest.raises(UnitOfWorkError, match="commit or leave it first"):
                await outer.session.commit()

            await inner.commit()
            await outer.commit()
        await session.commit()

    assert await database.order_ids() == ["o-1", "o-2"]


async def test_a_unit_of_work_left_open_is_rolled_back_and_says_so(database: Database) -> None:
    uow = SQLAlchemyUnitOfWork(database.sessions)
    async with database.sessions() as session:
        async with joined_transaction(session):
            await uow.__aenter__()
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
        await session.commit()

    with pytest.raises(NoActiveUnitOfWork, match="joined has ended"):
        await uow.commit()
    await uow.__aexit__()
    assert await database.order_ids() == []


async def test_a_unit_of_work_that_outlives_a_failed_owner_ends_quietly(database: Database) -> None:
    uow = SQLAlchemyUnitOfWork(database.sessions)
    with suppress(ZeroDivisionError):
        async with database.sessions() as session, joined_transaction(session):
            await uow.__aenter__()
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
            raise ZeroDivisionError

    await uow.__aexit__()

    assert await database.order_ids() == []
    await place(database, "o-2")


async def test_a_task_that_the_handler_left_behind_has_its_own_transaction(
    database: Database,
) -> None:
    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        await place(database, "o-1")

    async with database.sessions() as session:
        async with joined_transaction(session):
            task = asyncio.create_task(later())
        await session.rollback()
    over.set()
    await task

    assert await database.order_ids() == ["o-1"]


async def test_events_of_owner_and_unit_of_work_keep_their_order(database: Database) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(Noted("first"), key="k")
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as uow:
            await uow.outbox.add(Noted("second"), key="k")
            await uow.commit()
        await SqlAlchemyOutbox(session).add(Noted("third"), key="k")
        await session.commit()

    assert [record.payload["text"] for record in await database.events()] == [
        "first", "second", "third",
    ]  # fmt: skip


async def test_projectors_are_told_when_the_owner_commits(database: Database) -> None:
    with wakeup_of(database.engine).listen() as listener:
        async with database.sessions() as session:
            async with joined_transaction(session):
                await place(database, "o-1")
            await asyncio.wait_for(listener.wait(), 30)  # the early one, which finds nothing

            await session.commit()

        await asyncio.wait_for(listener.wait(), 30)


async def test_projectors_are_told_although_a_later_block_has_armed_nothing(
    database: Database,
) -> None:
    """The last block of a transaction passed for the only one: events waited for a look."""
    with wakeup_of(database.engine).listen() as listener:
        async with database.sessions() as session:
            async with joined_transaction(session):
                await place(database, "o-1")
            await asyncio.wait_for(listener.wait(), 30)  # the early one, which finds nothing
            async with joined_transaction(session):
                pass

            await session.commit()

        await asyncio.wait_for(listener.wait(), 30)


async def test_the_sessions_own_commit_arms_too(database: Database) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session) as running:
            async with SQLAlchemyUnitOfWork(database.sessions) as uow:
                uow.session.add(Order(id="o-1"))
                await uow.session.commit()
            assert running.armed == 1
        await session.rollback()

    assert await database.order_ids() == []


async def test_a_session_that_served_before_has_its_engine_again(database: Database) -> None:
    kept = database.sessions()

    async with database.sessions() as session:
        async with joined_transaction(session), SQLAlchemyUnitOfWork(lambda: kept) as uow:
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.commit()
        await session.rollback()
    async with SQLAlchemyUnitOfWork(lambda: kept) as uow:
        await uow.repository(Order).save(Order.place("o-2"))
        await uow.commit()

    assert await database.order_ids() == ["o-2"]


async def test_a_session_that_is_at_work_cannot_join(database: Database) -> None:
    async with (
        database.sessions() as session,
        database.sessions() as busy,
        joined_transaction(session),
    ):
        with pytest.raises(UnitOfWorkError, match="at work already"):
            await SQLAlchemyUnitOfWork(lambda: session).__aenter__()
        await busy.begin()
        with pytest.raises(UnitOfWorkError, match="at work already"):
            await SQLAlchemyUnitOfWork(lambda: busy).__aenter__()


async def test_a_unit_of_work_that_is_not_used_begins_no_transaction(database: Database) -> None:
    async with database.sessions() as session, joined_transaction(session):
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            await uow.commit()

        assert not session.in_transaction()


async def test_an_independent_unit_of_work_commits_by_itself(database: Database) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session) as running:
            await place(database, "o-1", independent=True)
            assert running.armed == 0
        await session.rollback()

    assert await database.order_ids() == ["o-1"]


async def test_a_joined_unit_of_work_stays_in_the_owners_tenant(database: Database) -> None:
    walled = CaptureSettings.from_env({"PILLARBOX_TENANCY": "required"})
    async with database.sessions() as session:
        with tenant("acme"):
            async with SQLAlchemyUnitOfWork(lambda: session, settings=walled) as owner:
                await owner.session.connection()
                async with joined_transaction(owner.session):
                    async with SQLAlchemyUnitOfWork(database.sessions, settings=walled) as uow:
                        await uow.outbox.add(Noted("mine"))
                        await uow.commit()
                    with pytest.raises(TenantMismatch):
                        await SQLAlchemyUnitOfWork(
                            database.sessions, tenant_id="other", settings=walled
                        ).__aenter__()
                await owner.commit()

    assert [record.tenant_id for record in await database.events()] == ["acme"]
