"""Every route round the ORM filter, taken as the application: none leads to a foreign row."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from pillarbox import SqlAlchemyOutbox, tenant
from pillarbox.tenancy import enter_tenant
from tests.tenancy.routes import AIMED, READS, WRITES
from tests.tenancy.shop import ACME, GLOBEX, OURS, TABLES, Customer
from tests.tenancy.wall import OWNER, REQUIRED, Wall, one_wall, opened, two_drivers

NEW_LINE = "INSERT INTO shop_lines (id, tenant_id, order_id) VALUES (9, 'acme', 1)"


async def run(session: AsyncSession, route: Callable[[Session], Any]) -> set[Any]:
    return await session.run_sync(lambda sync: set(route(sync)))


@pytest.mark.parametrize("route", READS)
async def test_no_read_returns_a_foreign_row(wall: Wall, route: str) -> None:
    with tenant(ACME):
        async with wall.sessions() as session:
            found = await run(session, READS[route])

    assert found == (set() if route in AIMED else {ACME})


@one_wall
@pytest.mark.parametrize("route", READS)
async def test_no_read_returns_a_foreign_row_without_the_orm_filter(wall: Wall, route: str) -> None:
    async with AsyncSession(wall.engine) as session:
        await session.run_sync(lambda sync: enter_tenant(sync.connection(), ACME))
        found = await run(session, READS[route])

    assert found == (set() if route in AIMED else {ACME})


@pytest.mark.parametrize("route", WRITES)
async def test_no_write_changes_a_foreign_row(wall: Wall, route: str) -> None:
    before = wall.everything_of(GLOBEX)
    write, refusal = WRITES[route]

    with tenant(ACME):
        async with wall.sessions() as session:
            if refusal is None:
                assert (await session.run_sync(write)).rowcount == 0
                await session.commit()
            else:
                with pytest.raises(refusal.error, match=refusal.words):
                    await session.run_sync(write)

    assert wall.everything_of(GLOBEX) == before


async def seen(connection: AsyncConnection) -> int:
    """Count what a connection sees in all tables together."""
    counts = [
        await connection.scalar(text(f"SELECT count(*) FROM {table}"))
        for table in (*OURS, "outbox_live", *TABLES)
    ]
    return sum(counts)


async def test_a_transaction_without_a_tenant_sees_nothing_and_writes_nothing(wall: Wall) -> None:
    async with wall.engine.connect() as connection:
        assert await seen(connection) == 0
        with pytest.raises(DBAPIError, match="row-level security"):
            await connection.execute(text(NEW_LINE))


async def test_after_a_transaction_with_a_tenant_its_connection_has_none(wall: Wall) -> None:
    async with wall.engine.connect() as connection:
        await connection.run_sync(enter_tenant, ACME)
        assert await seen(connection) > 0
        await connection.commit()

        # PostgreSQL now knows the setting, and says '' where it said nothing before.
        setting = await connection.scalar(text("SELECT current_setting('app.tenant', true)"))
        assert setting == ""
        assert await seen(connection) == 0
        with pytest.raises(DBAPIError, match="row-level security"):
            await connection.execute(text(NEW_LINE))


@one_wall
async def test_the_tenant_is_bound_and_never_part_of_the_statement(wall: Wall) -> None:
    odd = "acme', false); SELECT set_config('app.tenant', 'globex"

    async with wall.engine.connect() as connection:
        await connection.run_sync(enter_tenant, odd)

        assert await connection.scalar(text("SELECT current_setting('app.tenant')")) == odd
        assert await seen(connection) == 0


@two_drivers
async def test_the_owner_of_the_tables_stands_before_the_wall_too(wall: Wall) -> None:
    async with opened(wall.url_as(OWNER), wall.admin) as owned, owned.engine.connect() as owner:
        assert await seen(owner) == 0
        await owner.run_sync(enter_tenant, ACME)
        tenants = await owner.scalars(text("SELECT DISTINCT tenant_id FROM shop_lines"))

        assert tenants.all() == [ACME]


async def test_the_same_id_in_two_tenants_is_two_rows(wall: Wall) -> None:
    with tenant(ACME):
        async with wall.sessions() as session:
            session.add(Customer(id=2))  # globex has customer 2, acme has not
            await session.commit()

    customers = wall.rows("SELECT tenant_id, name FROM shop_customers WHERE id = 2 ORDER BY 1")
    assert customers == [(ACME, "1"), (GLOBEX, "secret")]


async def test_a_unique_violation_tells_of_own_rows_only(wall: Wall) -> None:
    with tenant(ACME):
        async with wall.sessions() as session:
            session.add(Customer(id=1))
            with pytest.raises(IntegrityError, match="acme"):
                await session.commit()


async def test_an_event_id_that_another_tenant_uses_is_free(wall: Wall) -> None:
    taken = "01900000-0000-7000-8000-000000000002"

    with tenant(ACME):
        async with wall.engine.begin() as connection:
            outbox = SqlAlchemyOutbox(connection, settings=REQUIRED)
            await outbox.add(topic="t", payload={"mine": True}, event_id=taken)

    rows = wall.rows(f"SELECT tenant_id, topic FROM outbox WHERE id = '{taken}' ORDER BY 1")
    assert rows == [(ACME, "t"), (GLOBEX, "t")]


@pytest.mark.parametrize("statement", ["TRUNCATE {}", "ALTER TABLE {} DISABLE ROW LEVEL SECURITY"])
@one_wall
async def test_what_policies_do_not_cover_is_not_granted(wall: Wall, statement: str) -> None:
    with tenant(ACME):
        async with wall.sessions() as session:
            with pytest.raises(DBAPIError, match=r"permission denied|must be owner"):
                await session.execute(text(statement.format("shop_orders")))
