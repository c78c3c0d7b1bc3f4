"""What only PostgreSQL does: a SELECT that writes, an error that aborts the transaction."""

from contextlib import suppress

import pytest
from sqlalchemy import Executable, func, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.util import greenlet_spawn

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.uow.joining import joined_transaction
from tests.support.database import Database, on_postgres
from tests.support.orders import Order
from tests.uow.test_joining import place
from tests.uow.test_restarting import (
    OWNERS,
    RAISING,
    Owner,
    owner,
    undoes_what_is_armed_inside,
)

__all__ = ["owner"]

pytestmark = on_postgres


async def test_an_aborted_transaction_is_noticed_before_the_owner_commits(
    database: Database,
) -> None:
    async def handle(session: AsyncSession) -> None:
        async with joined_transaction(session):
            await place(database, "o-1")
            with suppress(DBAPIError):
                await session.execute(text("SELECT 1 / 0"))

    async with database.sessions() as session:
        with pytest.raises(DBAPIError):
            await handle(session)

    assert await database.order_ids() == []


@pytest.mark.parametrize(
    "statement",
    [
        select(insert(Order).values(id="o-9", total=1, version=1).returning(Order.id).cte()),
        select(Order.id).add_cte(insert(Order).values(id="o-9", total=1, version=1).cte()),
        select(RAISING.cte()),
    ],
    ids=["selected", "beside", "text"],
)
async def test_one_that_writes_in_a_cte_does_not_count_as_a_reader(
    database: Database, owner: Owner, statement: Executable
) -> None:
    await undoes_what_is_armed_inside(database, owner, statement)


async def test_what_a_text_in_a_cte_wrote_is_undone_with_its_unit_of_work(
    database: Database,
) -> None:
    """It counted as reading: nobody had committed it, and the owner did."""
    async with database.sessions() as session:
        session.add(Order(id="o-1", total=1))
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as uow:
            assert (await uow.session.scalars(select(RAISING.cte()))).all() == ["o-1"]
        await session.commit()

    assert await database.scalar("SELECT total FROM orders") == 1


async def test_what_a_function_wrote_is_undone_with_its_unit_of_work(
    database: Database, owner: Owner
) -> None:
    """It counted as reading: nobody had committed it, and the owner did."""
    reserving = text(
        "CREATE FUNCTION pg_temp.reserve(id text) RETURNS void LANGUAGE sql AS"
        " 'INSERT INTO orders (id, total, status, version) VALUES (id, 1, ''NEW'', 1)'"
    )
    await greenlet_spawn(lambda: owner.connection().execute(reserving))

    async with joined_transaction(owner), SQLAlchemyUnitOfWork(database.sessions) as uow:
        await uow.session.execute(select(func.pg_temp.reserve("o-1")))
    await owner.commit_all()

    assert await database.order_ids() == [OWNERS]
