"""What counts as reading: a unit of work that is not committed leaves nothing else behind."""

import pytest
from sqlalchemy import Executable, select

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.uow.joining import joined_transaction
from tests.support.database import Database, on
from tests.support.orders import Order
from tests.uow.test_restarting import RAISING

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


@pytest.mark.parametrize("statement", [RAISING, select(RAISING.cte())], ids=["whole", "in a CTE"])
async def test_what_a_text_with_columns_wrote_is_undone_with_its_unit_of_work(
    database: Database, statement: Executable
) -> None:
    """It counted as reading: nobody had committed it, and the owner did."""
    if not database.is_postgres and statement is not RAISING:
        return  # SQLite has no writing CTE

    async with database.sessions() as session:
        session.add(Order(id="o-1", total=1))
        async with joined_transaction(session), SQLAlchemyUnitOfWork(database.sessions) as uow:
            assert (await uow.session.scalars(statement)).all() == ["o-1"]
        await session.commit()

    assert await database.scalar("SELECT total FROM orders") == 1
