"""One transaction records the events of one tenant, whichever way they come in."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox import SqlAlchemyOutbox, SQLAlchemyUnitOfWork, collect_events, tenant
from pillarbox.errors import DuplicateEventId, TenantMismatch, TenantRequired
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on
from tests.support.orders import Order
from tests.tenancy.shop import ACME, GLOBEX
from tests.tenancy.wall import REQUIRED, Wall, two_drivers

EVENT: dict[str, Any] = {"topic": "order.created", "payload": {"order_id": "1"}}
RESOLVED = CaptureSettings(tenancy=Tenancy.from_env({}, resolver=lambda: None))
TAKEN = "01900000-0000-7000-8000-000000000001"

sqlite = on("sqlite+aiosqlite")


@pytest.fixture
async def unfinished(database: Database) -> AsyncIterator[SQLAlchemyUnitOfWork]:
    """A unit of work in a transaction of acme, with an order that has raised an event."""
    uow = SQLAlchemyUnitOfWork(database.sessions, settings=REQUIRED)
    async with uow:
        with tenant(ACME):
            await uow.repository(Order).save(Order.place("1"))
            await uow.session.flush()
        yield uow


@sqlite
async def test_events_that_were_raised_for_one_tenant_do_not_commit_for_another(
    unfinished: SQLAlchemyUnitOfWork, database: Database
) -> None:
    with tenant(GLOBEX), pytest.raises(TenantMismatch):
        await unfinished.commit()

    assert await database.count() == 0


@sqlite
async def test_an_event_added_for_another_tenant_does_not_commit_with_a_transaction(
    unfinished: SQLAlchemyUnitOfWork, database: Database
) -> None:
    with tenant(GLOBEX):
        await SqlAlchemyOutbox(unfinished.session, settings=REQUIRED).add(**EVENT)

    with tenant(ACME), pytest.raises(TenantMismatch):
        await unfinished.commit()

    assert await database.count() == 0


@sqlite
async def test_two_outboxes_on_one_session_do_not_serve_two_tenants(database: Database) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session, ACME, settings=REQUIRED).add(**EVENT)

        with pytest.raises(TenantMismatch, match=GLOBEX):
            await SqlAlchemyOutbox(session, GLOBEX, settings=REQUIRED).add(**EVENT)


@sqlite
async def test_two_outboxes_on_one_connection_do_not_serve_two_tenants_at_once(
    database: Database,
) -> None:
    async with database.engine.connect() as connection:
        await SqlAlchemyOutbox(connection, ACME, settings=REQUIRED).add(**EVENT)
        with pytest.raises(TenantMismatch, match=GLOBEX):
            await SqlAlchemyOutbox(connection, GLOBEX, settings=REQUIRED).add(**EVENT)
        await connection.commit()
        await SqlAlchemyOutbox(connection, GLOBEX, settings=REQUIRED).add(**EVENT)
        await connection.commit()

    assert [record.tenant_id for record in await database.events()] == [ACME, GLOBEX]


@sqlite
async def test_a_session_serves_one_tenant_after_another(database: Database) -> None:
    sessions = async_sessionmaker(database.engine)
    collect_events(sessions, settings=REQUIRED)

    async with sessions() as session:
        for name in (ACME, GLOBEX):
            with tenant(name):
                await session.execute(select(1))
                await SqlAlchemyOutbox(session).add(**EVENT)
                await session.commit()

    assert [record.tenant_id for record in await database.events()] == [ACME, GLOBEX]


@sqlite
async def test_naming_a_service_does_not_switch_tenancy_off(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PILLARBOX_TENANCY", raising=False)
    sessions = async_sessionmaker(database.engine)
    collect_events(sessions, settings=RESOLVED)

    async with sessions() as session:
        with pytest.raises(TenantRequired):
            await SqlAlchemyOutbox(session, service="shop").add(**EVENT)
    async with SQLAlchemyUnitOfWork(sessions, service="shop") as uow:
        with pytest.raises(TenantRequired):
            await uow.outbox.add(**EVENT)


@two_drivers
async def test_a_connection_sees_the_tenants_earlier_event_with_the_same_id(wall: Wall) -> None:
    async with wall.engine.connect() as connection:
        outbox = SqlAlchemyOutbox(connection, ACME, settings=REQUIRED)
        await outbox.add(**EVENT, event_id=TAKEN)

        with pytest.raises(DuplicateEventId):
            await outbox.flush()


@two_drivers
async def test_a_tenant_entered_in_a_savepoint_is_entered_again_after_its_rollback(
    wall: Wall,
) -> None:
    async with wall.engine.connect() as connection:
        outbox = SqlAlchemyOutbox(connection, "initech", settings=REQUIRED)
        async with connection.begin_nested() as savepoint:
            await outbox.add(**EVENT)
            await savepoint.rollback()
        await outbox.add(**EVENT)
        await connection.commit()

    assert wall.rows("SELECT count(*) FROM outbox WHERE tenant_id = 'initech'") == [(1,)]


@two_drivers
async def test_rows_on_the_wall_carry_the_tenant_of_the_unit_of_work(wall: Wall) -> None:
    async with SQLAlchemyUnitOfWork(wall.sessions, tenant_id="initech") as uow:
        await uow.outbox.add(**EVENT)
        await uow.session.execute(text("SELECT 1"))
        await uow.commit()

    assert wall.rows("SELECT count(*) FROM outbox WHERE tenant_id = 'initech'") == [(1,)]
