"""An owner that can write its part again: the first unit of work needs no savepoint."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import Connection, Executable, column, event, insert, select, table, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import greenlet_spawn

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.errors import UnitOfWorkError
from pillarbox.uow.joining import joined_transaction, joining_session
from pillarbox.uow.owner import ConnectionOwner
from tests.support.database import Database, on
from tests.support.orders import Order
from tests.uow.test_joining import place

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

OWNERS = "owner"
FAILS = select(table("no_such_table", column("id")))
RAISING = text("UPDATE orders SET total = 9 RETURNING id").columns(column("id"))


def write_owners_part(connection: Connection) -> None:
    connection.execute(insert(Order).values(id=OWNERS, total=0, version=1))


class Owner(ConnectionOwner):
    """An owner that has written its part, and whose calls a test can await."""

    async def begin(self) -> None:
        await greenlet_spawn(lambda: write_owners_part(self.connection()))

    async def commit_all(self) -> None:
        await greenlet_spawn(self.commit)


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[Owner]:
    found = Owner(database.engine.sync_engine, write_owners_part)
    await found.begin()
    yield found
    await greenlet_spawn(found.close)


@contextmanager
def savepoints(database: Database) -> Iterator[list[str]]:
    """Note the savepoints that are made."""
    seen: list[str] = []

    def note(connection: Connection, name: str) -> None:
        del connection
        seen.append(name)

    event.listen(database.engine.sync_engine, "savepoint", note)
    yield seen
    event.remove(database.engine.sync_engine, "savepoint", note)


async def test_the_first_unit_of_work_has_no_savepoint_and_the_second_has(
    database: Database, owner: Owner
) -> None:
    with savepoints(database) as seen:
        async with joined_transaction(owner):
            await place(database, "o-1")
            assert seen == []
            await place(database, "o-2")
            assert len(seen) == 1
        await owner.commit_all()

    assert await database.order_ids() == ["o-1", "o-2", OWNERS]
    assert await database.event_types() == ["OrderPlaced", "OrderPlaced"]


@pytest.mark.parametrize("ending", ["rollback", "leave", "close"])
async def test_when_it_is_undone_the_owners_part_is_written_again(
    database: Database, owner: Owner, ending: str
) -> None:
    async with joined_transaction(owner), SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.session.flush()
        if ending == "rollback":
            await uow.rollback()
        elif ending == "close":
            await uow.session.close()
    await owner.commit_all()

    assert await database.order_ids() == [OWNERS]
    assert await database.event_types() == []


async def test_work_after_an_undone_first_one_comes_after_the_owners_part(
    database: Database, owner: Owner
) -> None:
    with savepoints(database) as seen:
        async with joined_transaction(owner):
            with pytest.raises(IntegrityError):
                await place(database, OWNERS)
            await place(database, "o-1")
        await owner.commit_all()

    assert seen == []
    assert await database.order_ids() == ["o-1", OWNERS]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_second_one_that_is_undone_costs_only_itself(
    database: Database, owner: Owner
) -> None:
    async with joined_transaction(owner) as running:
        await place(database, "o-1")
        with pytest.raises(IntegrityError):
            await place(database, "o-1")
        await place(database, "o-2")
        assert running.armed == 2
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", "o-2", OWNERS]


async def test_an_owner_that_cannot_begin_anew_says_so_to_the_handler(
    database: Database, owner: Owner
) -> None:
    def refuse(connection: Connection) -> None:
        raise LookupError("somebody else has it")

    async def handle() -> None:
        async with joined_transaction(owner):
            with pytest.raises(IntegrityError):
                await place(database, OWNERS)
            with pytest.raises(LookupError):
                await place(database, "o-1")

    owner.restart = refuse
    with pytest.raises(LookupError):
        await handle()
    await greenlet_spawn(owner.close)

    assert await database.order_ids() == []


async def test_one_that_only_reads_may_stand_around_others(
    database: Database, owner: Owner
) -> None:
    async with (
        joined_transaction(owner),
        SQLAlchemyUnitOfWork(database.sessions) as reader,
    ):
        assert (await reader.session.scalars(select(Order.id))).all() == [OWNERS]
        await place(database, "o-1")
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


async def test_one_that_only_reads_may_stand_around_others_in_a_savepoint_too(
    database: Database,
) -> None:
    async with database.sessions() as session:
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as reader:
            await reader.session.scalars(select(Order.id))
            await place(database, "o-1")
        await session.commit()

    assert await database.order_ids() == ["o-1"]


@pytest.mark.parametrize("statement", [text("UPDATE orders SET total = 9"), RAISING])
async def test_one_that_writes_in_any_way_does_not_count_as_a_reader(
    database: Database, owner: Owner, statement: Executable
) -> None:
    await undoes_what_is_armed_inside(database, owner, statement)


async def undoes_what_is_armed_inside(
    database: Database, owner: Owner, statement: Executable
) -> None:
    async def handle() -> None:
        async with joined_transaction(owner), SQLAlchemyUnitOfWork(database.sessions) as writer:
            await writer.session.execute(statement)
            await place(database, "o-1")

    with pytest.raises(UnitOfWorkError, match="both are undone"):
        await handle()
    await greenlet_spawn(owner.close)

    assert await database.order_ids() == []


@pytest.mark.parametrize("ending", ["rollback", "close"])
async def test_when_a_reader_is_rolled_back_the_owners_part_is_written_again(
    database: Database, owner: Owner, ending: str
) -> None:
    """Nobody noted that the whole transaction had gone with it."""
    async with joined_transaction(owner):
        async with SQLAlchemyUnitOfWork(database.sessions) as reader:
            await reader.session.scalars(select(Order.id))
            await (reader.rollback() if ending == "rollback" else reader.session.close())
        await place(database, "o-1")
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


@pytest.mark.parametrize("swallowed", [True, False], ids=["inside", "outside"])
async def test_a_select_that_fails_costs_only_its_unit_of_work(
    database: Database, owner: Owner, swallowed: bool
) -> None:
    """It had only read, and left the transaction aborted: all that came after it failed."""
    async with joined_transaction(owner):
        with suppress(DBAPIError):
            async with SQLAlchemyUnitOfWork(database.sessions) as reader:
                with suppress(*([DBAPIError] if swallowed else [])):
                    await reader.session.execute(FAILS)
        await place(database, "o-1")
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


async def test_what_a_driver_knows_of_a_readers_transaction_is_not_asked(
    database: Database, owner: Owner
) -> None:
    """asyncpg does not tell whether a statement has failed whose error somebody has caught."""
    seen: list[str] = []

    def note(_1: object, _2: object, statement: str, *_3: object) -> None:
        seen.append(statement)

    engine = database.engine.sync_engine
    async with joined_transaction(owner):
        event.listen(engine, "before_cursor_execute", note)
        async with SQLAlchemyUnitOfWork(database.sessions) as reader:
            await reader.session.scalars(select(Order.id))
        event.remove(engine, "before_cursor_execute", note)

    assert len(seen) == (2 if database.engine.dialect.driver == "asyncpg" else 1)


async def test_what_a_reader_has_added_and_not_flushed_is_not_written(
    database: Database, owner: Owner
) -> None:
    async with joined_transaction(owner), joining_session(database.sessions) as session:
        await session.scalars(select(Order.id))
        session.add(Order.place("o-1"))
    await owner.commit_all()

    assert await database.order_ids() == [OWNERS]
    assert await database.event_types() == []


async def test_a_rollback_after_a_commit_of_nothing_is_a_rollback(database: Database) -> None:
    """It passed for a commit: what was armed inside was lost, and nobody was told."""

    async def handle() -> None:
        async with joining_session(database.sessions) as outer:
            await outer.commit()
            outer.add(Order.place("o-1"))
            await outer.flush()
            await place(database, "o-2")
            await outer.rollback()

    async with database.sessions() as session:
        with pytest.raises(UnitOfWorkError, match="both are undone"):
            async with joined_transaction(session):
                await handle()

    assert await database.order_ids() == []


async def test_a_session_that_outlives_the_owner_is_refused(
    database: Database, owner: Owner
) -> None:
    over = asyncio.Event()

    async def later() -> None:
        async with joining_session(database.sessions) as session:
            await over.wait()
            with pytest.raises(UnitOfWorkError, match="has ended"):
                await session.scalars(select(Order.id))

    async with joined_transaction(owner):
        task = asyncio.create_task(later())
        await asyncio.wait([task], timeout=0)
        await place(database, "o-1")
    over.set()
    await task
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


async def test_without_an_owner_a_session_commits_by_itself(database: Database) -> None:
    async with joining_session(database.sessions) as session:
        session.add(Order.place("o-1"))
        await session.commit()

    assert await database.order_ids() == ["o-1"]
