"""Which tenant an outbox row gets, tenancy off and on, by every way to record an event."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from pillarbox import (
    SqlAlchemyOutbox,
    SQLAlchemyUnitOfWork,
    SyncSqlAlchemyOutbox,
    collect_events,
    tenant,
)
from pillarbox.errors import InvalidConfig, InvalidKey, TenantMismatch, TenantRequired
from pillarbox.event.context import current_tenant
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on
from tests.support.orders import Order

Way = Callable[[Database, CaptureSettings, str], Awaitable[None]]
OFF = CaptureSettings(tenancy=Tenancy())
REQUIRED = CaptureSettings(tenancy=Tenancy.from_env({"PILLARBOX_TENANCY": "required"}))
EVENT: dict[str, Any] = {"topic": "order.created", "payload": {"order_id": "1"}}
BAD_TENANTS = ["", " ", "*", "acme'", 'acme"', "a;b", "ä", "a\n", "a" * 65, "-a", "acme/globex"]


async def by_unit_of_work(database: Database, settings: CaptureSettings, named: str) -> None:
    uow = SQLAlchemyUnitOfWork(database.sessions, tenant_id=named, settings=settings)
    async with uow:
        await uow.repository(Order).save(Order.place("1"))
        await uow.commit()


async def by_outbox_of_unit_of_work(
    database: Database, settings: CaptureSettings, named: str
) -> None:
    uow = SQLAlchemyUnitOfWork(database.sessions, tenant_id=named, settings=settings)
    async with uow:
        await uow.outbox.add(**EVENT)
        await uow.commit()


async def by_outbox_on_session(database: Database, settings: CaptureSettings, named: str) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session, named, settings=settings).add(**EVENT)
        await session.commit()


async def by_outbox_on_connection(
    database: Database, settings: CaptureSettings, named: str
) -> None:
    async with database.engine.begin() as connection:
        await SqlAlchemyOutbox(connection, named, settings=settings).add(**EVENT)


async def by_sync_outbox_on_session(
    database: Database, settings: CaptureSettings, named: str
) -> None:
    with database.sync_engine() as engine, sessionmaker(engine)() as session:
        SyncSqlAlchemyOutbox(session, named, settings=settings).add(**EVENT)
        session.commit()


async def by_sync_outbox_on_connection(
    database: Database, settings: CaptureSettings, named: str
) -> None:
    with database.sync_engine() as engine, engine.begin() as connection:
        SyncSqlAlchemyOutbox(connection, named, settings=settings).add(**EVENT)


async def by_session_hook(database: Database, settings: CaptureSettings, named: str) -> None:
    sessions = async_sessionmaker(database.engine, expire_on_commit=False)
    collect_events(sessions, settings=settings)
    async with sessions() as session:
        session.add(Order.place("1"))
        await session.commit()


async def by_sync_session_hook(database: Database, settings: CaptureSettings, named: str) -> None:
    with database.sync_engine() as engine:
        sessions = sessionmaker(engine)
        collect_events(sessions, settings=settings)
        with sessions() as session:
            session.add(Order.place("1"))
            session.commit()


NAMING: tuple[Way, ...] = (
    by_unit_of_work,
    by_outbox_of_unit_of_work,
    by_outbox_on_session,
    by_outbox_on_connection,
    by_sync_outbox_on_session,
    by_sync_outbox_on_connection,
)
WAYS: tuple[Way, ...] = (*NAMING, by_session_hook, by_sync_session_hook)
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
naming_way = pytest.mark.parametrize("way", NAMING, ids=lambda way: way.__name__)
two_databases = on("postgres18+psycopg", "sqlite+aiosqlite")


async def tenants(database: Database) -> list[str]:
    return [record.tenant_id for record in await database.events()]


@two_databases
@every_way
async def test_with_tenancy_off_a_row_that_names_no_tenant_has_the_default_one(
    database: Database, way: Way
) -> None:
    await way(database, OFF, "default")

    assert await tenants(database) == ["default"]


@two_databases
@every_way
@pytest.mark.parametrize("settings", [OFF, REQUIRED], ids=["off", "required"])
async def test_the_tenant_of_the_context_is_the_tenant_of_the_row(
    database: Database, way: Way, settings: CaptureSettings
) -> None:
    with tenant("acme"):
        await way(database, settings, "default")

    assert await tenants(database) == ["acme"]


@two_databases
@naming_way
async def test_with_tenancy_off_the_tenant_that_is_named_is_the_tenant_of_the_row(
    database: Database, way: Way
) -> None:
    await way(database, OFF, "acme")

    assert await tenants(database) == ["acme"]


@two_databases
@naming_way
async def test_with_tenancy_on_the_tenant_that_is_named_is_the_tenant_of_the_row(
    database: Database, way: Way
) -> None:
    await way(database, REQUIRED, "acme")

    assert await tenants(database) == ["acme"]


@on("sqlite+aiosqlite")
@every_way
async def test_a_resolver_switches_tenancy_on_and_names_the_tenant(
    database: Database, way: Way
) -> None:
    resolved = CaptureSettings(tenancy=Tenancy.from_env({}, resolver=lambda: "acme"))

    await way(database, resolved, "default")

    assert await tenants(database) == ["acme"]


@two_databases
@every_way
@pytest.mark.parametrize("resolver", [None, lambda: None], ids=["required", "resolver"])
async def test_with_tenancy_on_and_no_tenant_nothing_is_recorded(
    database: Database, way: Way, resolver: Callable[[], None] | None
) -> None:
    settings = CaptureSettings(tenancy=Tenancy(required=True, resolver=resolver))

    with pytest.raises(TenantRequired):
        await way(database, settings, "default")

    assert await database.count() == 0


@two_databases
@naming_way
@pytest.mark.parametrize("settings", [OFF, REQUIRED], ids=["off", "required"])
async def test_another_tenant_than_the_contexts_is_refused(
    database: Database, way: Way, settings: CaptureSettings
) -> None:
    with tenant("acme"), pytest.raises(TenantMismatch, match="globex"):
        await way(database, settings, "globex")

    assert await database.count() == 0


@on("sqlite+aiosqlite")
@naming_way
@pytest.mark.parametrize("named", BAD_TENANTS)
async def test_what_is_no_tenant_id_is_refused(database: Database, way: Way, named: str) -> None:
    with pytest.raises(InvalidKey, match="tenant_id is no tenant id"):
        await way(database, REQUIRED, named)

    assert await database.count() == 0


@pytest.mark.parametrize("named", BAD_TENANTS)
def test_a_context_of_what_is_no_tenant_id_is_refused(named: str) -> None:
    with pytest.raises(InvalidKey), tenant(named):
        pytest.fail("the block was entered")


@on("sqlite+aiosqlite")
@pytest.mark.parametrize("named", BAD_TENANTS)
async def test_a_resolver_that_names_no_tenant_id_is_refused(
    database: Database, named: str
) -> None:
    resolved = CaptureSettings(tenancy=Tenancy.from_env({}, resolver=lambda: named))

    with pytest.raises(InvalidKey):
        await by_unit_of_work(database, resolved, "default")


def test_contexts_nest_for_one_tenant_and_refuse_another() -> None:
    with tenant("acme"):
        with tenant("acme"):
            assert current_tenant() == "acme"
        assert current_tenant() == "acme"
        with pytest.raises(TenantMismatch, match="globex"), tenant("globex"):
            pytest.fail("the block was entered")
        assert current_tenant() == "acme"
    assert current_tenant() is None


def test_a_context_ends_with_its_block_also_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), tenant("acme"):
        _ = 1 / 0

    assert current_tenant() is None


@pytest.mark.parametrize("mode", ["", "on", "REQUIRED", "true"])
def test_a_mode_that_does_not_exist_is_refused(mode: str) -> None:
    with pytest.raises(InvalidConfig, match="PILLARBOX_TENANCY"):
        Tenancy.from_env({"PILLARBOX_TENANCY": mode})
