"""Savepoints of the user's, and sessions inside one another: what is undone unseen is not committed."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from sqlalchemy import insert, select
from sqlalchemy.util import greenlet_spawn

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.errors import UnitOfWorkError
from pillarbox.uow.joining import joined_transaction, joining_session
from tests.support.database import Database, on
from tests.support.orders import Order
from tests.uow.test_joining import place
from tests.uow.test_restarting import OWNERS, Owner, owner

__all__ = ["owner"]

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

ORDERS = select(Order.id)


class Refused(Exception):
    """The user's reason to roll a savepoint back."""


async def in_a_transaction(database: Database, handle: Callable[[], Awaitable[None]]) -> None:
    """Do something in a transaction that a session owns, and commit it."""
    async with database.sessions() as session:
        async with joined_transaction(session):
            await handle()
        await session.commit()


async def test_a_reader_is_let_go_with_the_savepoints_that_it_has_open(database: Database) -> None:
    """They were rolled back, with what was armed inside them."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as reader:
            await reader.session.scalars(ORDERS)
            await reader.session.begin_nested()
            await reader.session.scalars(ORDERS)
            await place(database, "o-1")
            await reader.session.begin_nested()
            await reader.session.scalars(ORDERS)
            await place(database, "o-2")

    await in_a_transaction(database, handle)

    assert await database.order_ids() == ["o-1", "o-2"]
    assert await database.event_types() == ["OrderPlaced", "OrderPlaced"]


async def test_armed_work_in_a_savepoint_that_is_rolled_back_keeps_the_owner_from_committing(
    database: Database,
) -> None:
    """It was gone, and the owner committed the rest."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.repository(Order).save(Order.place("o-1"))
            with suppress(Refused):
                async with outer.savepoint():
                    await outer.session.scalars(ORDERS)
                    await place(database, "o-2")
                    raise Refused
            await outer.commit()

    with pytest.raises(UnitOfWorkError, match=r"a savepoint of .* both are undone"):
        await in_a_transaction(database, handle)

    assert await database.order_ids() == []


async def test_armed_work_before_or_behind_a_savepoint_that_is_rolled_back_stays(
    database: Database,
) -> None:
    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            with suppress(Refused):
                async with outer.savepoint():
                    await place(database, "o-1")  # no statement has made the savepoint yet
                    await outer.session.scalars(ORDERS)
                    raise Refused
            async with outer.savepoint():
                await outer.session.scalars(ORDERS)
                await place(database, "o-2")
            await place(database, "o-3")
            await outer.commit()

    await in_a_transaction(database, handle)

    assert await database.order_ids() == ["o-1", "o-2", "o-3"]


@pytest.mark.filterwarnings("ignore:nested transaction already deassociated")
async def test_a_savepoint_is_not_released_around_a_unit_of_work_that_is_at_work(
    database: Database,
) -> None:
    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            opened = await outer.session.begin_nested()
            await outer.session.scalars(ORDERS)
            async with SQLAlchemyUnitOfWork(database.sessions) as inner:
                await inner.session.scalars(ORDERS)
                with pytest.raises(UnitOfWorkError, match="commit or leave it first"):
                    await opened.commit()
            await opened.commit()
            await outer.commit()

    await in_a_transaction(database, handle)


@pytest.mark.filterwarnings("ignore:nested transaction already deassociated")
async def test_a_savepoint_that_is_rolled_back_around_a_unit_of_work_keeps_the_owner_from_committing(
    database: Database,
) -> None:
    """What the inner one did afterwards stood in no savepoint, and was committed without its events."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            opened = await outer.session.begin_nested()
            await outer.session.scalars(ORDERS)
            async with SQLAlchemyUnitOfWork(database.sessions) as inner:
                await inner.repository(Order).save(Order.place("o-1"))
                await inner.session.flush()
                await opened.rollback()
                with suppress(UnitOfWorkError):
                    await inner.session.execute(insert(Order).values(id="o-2", version=1))
            await outer.commit()

    with pytest.raises(UnitOfWorkError, match="around another one that is still at work"):
        await in_a_transaction(database, handle)

    assert await database.order_ids() == []


@pytest.mark.filterwarnings("ignore:nested transaction already deassociated")
async def test_rows_of_a_unit_of_work_inside_one_that_was_rolled_back_are_never_committed(
    database: Database, owner: Owner
) -> None:
    """They stood in the transaction without a savepoint: committed, though nobody had, and without events."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.repository(Order).save(Order.place("o-1"))
            await outer.session.flush()
            async with SQLAlchemyUnitOfWork(database.sessions) as inner:
                await inner.repository(Order).save(Order.place("o-2"))
                await inner.session.flush()
                await outer.rollback()
                with pytest.raises(UnitOfWorkError, match="undone with the one around it"):
                    await inner.session.execute(insert(Order).values(id="o-3", version=1))

    async def owned() -> None:
        async with joined_transaction(owner):
            await handle()

    with pytest.raises(UnitOfWorkError, match="around another one that is still at work"):
        await owned()
    await greenlet_spawn(owner.close)

    assert await database.order_ids() == []


async def test_a_reader_inside_one_that_was_rolled_back_ends_quietly(
    database: Database, owner: Owner
) -> None:
    async with joined_transaction(owner):
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.session.scalars(ORDERS)
            async with SQLAlchemyUnitOfWork(database.sessions) as inner:
                await inner.session.scalars(ORDERS)
                await outer.rollback()
                with pytest.raises(UnitOfWorkError, match="undone with the one around it"):
                    await inner.session.scalars(ORDERS)
        await place(database, "o-1")
    await owner.commit_all()

    assert await database.order_ids() == ["o-1", OWNERS]


async def test_what_one_writes_in_another_ones_savepoint_is_not_lost_with_it(
    database: Database,
) -> None:
    """It was undone with the inner one, and the outer one was committed without it."""

    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.session.scalars(ORDERS)
            async with SQLAlchemyUnitOfWork(database.sessions) as inner:
                await inner.session.execute(insert(Order).values(id="o-2", version=1))
                await outer.repository(Order).save(Order.place("o-1"))
                await outer.session.flush()
                await inner.rollback()
            await outer.commit()

    with pytest.raises(UnitOfWorkError, match="with what the one around it had written"):
        await in_a_transaction(database, handle)

    assert await database.order_ids() == []


async def test_what_one_writes_around_a_reader_stays(database: Database) -> None:
    async def handle() -> None:
        async with SQLAlchemyUnitOfWork(database.sessions) as outer:
            await outer.session.scalars(ORDERS)
            async with SQLAlchemyUnitOfWork(database.sessions) as reader:
                await reader.session.scalars(ORDERS)
                await outer.repository(Order).save(Order.place("o-1"))
                await outer.session.flush()
            await outer.commit()

    await in_a_transaction(database, handle)

    assert await database.order_ids() == ["o-1"]


async def test_a_block_that_outlives_the_transaction_with_nothing_in_it_ends_quietly(
    database: Database,
) -> None:
    async with database.sessions() as session:
        block = joined_transaction(session)
        await block.__aenter__()
        async with (
            joining_session(database.sessions) as joined,
            joined.begin(),
            joined.begin_nested(),
        ):
            await block.__aexit__(None, None, None)
        await session.commit()
