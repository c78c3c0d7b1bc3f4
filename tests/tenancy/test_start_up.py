"""Who may start: with tenancy on no role that the wall does not hold, with tenancy off anyone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import URL, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from pillarbox import Pillarbox
from pillarbox.errors import RowSecurityMissing, UnsafeRole
from tests.support.database import Database, on, on_postgres
from tests.support.orders import Order
from tests.tenancy.shop import ACME, GLOBEX
from tests.tenancy.wall import APP, OWNER, PROJECTOR, Wall, behind, two_drivers

ON = {"PILLARBOX_TENANCY": "required"}
each_server = behind("postgres18+asyncpg", "postgres16+psycopg", "postgres15+asyncpg")


@contextmanager
def role(admin: psycopg.Connection, *attributes: str) -> Iterator[str]:
    """Make a login role of the application with something more; drop it at the end."""
    admin.execute("CREATE ROLE tenancy_odd LOGIN IN ROLE pillarbox_app")
    for attribute in attributes:
        admin.execute(attribute.format("tenancy_odd").encode())
    try:
        yield "tenancy_odd"
    finally:
        admin.execute("REASSIGN OWNED BY tenancy_odd TO tenancy_owner; DROP OWNED BY tenancy_odd")
        admin.execute("DROP ROLE tenancy_odd")


async def check(
    url: URL, environ: dict[str, str] | None = None, *, allow_unsafe_role: bool = False
) -> None:
    box = Pillarbox(
        create_async_engine(url), environ=environ or {}, allow_unsafe_role=allow_unsafe_role
    )
    try:
        await box.check()
    finally:
        await box.engine.dispose()


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)


@each_server
async def test_the_application_role_starts_without_a_warning(
    wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    await check(wall.url_as(APP), ON)

    assert warnings(caplog) == ""


@each_server
@pytest.mark.parametrize(
    ("name", "reason"), [("postgres", "is a superuser"), (OWNER, "owns the outbox tables")]
)
async def test_superuser_and_owner_are_refused_unless_allowed(
    wall: Wall, caplog: pytest.LogCaptureFixture, name: str, reason: str
) -> None:
    with pytest.raises(UnsafeRole, match=reason):
        await check(wall.url_as(name), ON)

    await check(wall.url_as(name), ON, allow_unsafe_role=True)
    assert reason in warnings(caplog)


ODD = [
    ("ALTER ROLE {} BYPASSRLS", "has BYPASSRLS"),
    ("ALTER ROLE {} SUPERUSER", "is a superuser"),
    (f"GRANT {OWNER} TO {{}}", "owns the outbox tables"),
    ("GRANT pillarbox_projector TO {}", "is a member of the projector's role"),
]


@each_server
@pytest.mark.parametrize(("attribute", "reason"), ODD)
async def test_a_role_that_sees_past_the_wall_is_refused_unless_allowed(
    wall: Wall, attribute: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with role(wall.admin, attribute) as odd:
        with pytest.raises(UnsafeRole, match=reason):
            await check(wall.url_as(odd), ON)

        await check(wall.url_as(odd), ON, allow_unsafe_role=True)
        assert reason in warnings(caplog)


@each_server
@pytest.mark.parametrize(("attribute", "reason"), ODD[:2])
async def test_a_role_that_can_become_one_that_sees_past_the_wall_is_refused(
    wall: Wall, attribute: str, reason: str
) -> None:
    mighty = attribute.replace("{}", "tenancy_mighty")
    wall.admin.execute(f"CREATE ROLE tenancy_mighty; {mighty}".encode())
    try:
        with (
            role(wall.admin, "GRANT tenancy_mighty TO {}") as odd,
            pytest.raises(UnsafeRole, match=reason),
        ):
            await check(wall.url_as(odd), ON)
    finally:
        wall.admin.execute("DROP ROLE tenancy_mighty")


@each_server
async def test_with_tenancy_off_an_unsafe_role_is_only_warned(
    wall: Wall, caplog: pytest.LogCaptureFixture
) -> None:
    await check(wall.url_as("postgres"))

    assert "is a superuser" in warnings(caplog)


@on_postgres
async def test_with_tenancy_on_a_database_without_policies_is_refused(database: Database) -> None:
    with role_of(database) as plain, pytest.raises(RowSecurityMissing, match="outbox"):
        await check(plain, ON)


@on("sqlite+aiosqlite")
async def test_sqlite_starts_with_tenancy_at_its_weaker_level(database: Database) -> None:
    await check(database.url, ON)


@contextmanager
def role_of(database: Database) -> Iterator[URL]:
    """Make a role as a newcomer has it: some rights on the tables, no group of ours."""
    url = database.url.set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as admin:
        admin.execute("CREATE ROLE tenancy_newcomer LOGIN")
        for kind in ("TABLES", "SEQUENCES"):
            grant = f"GRANT ALL ON ALL {kind} IN SCHEMA public TO tenancy_newcomer"
            admin.execute(grant.encode())
        try:
            yield database.url.set(username="tenancy_newcomer")
        finally:
            admin.execute("DROP OWNED BY tenancy_newcomer")
            admin.execute("DROP ROLE tenancy_newcomer")


@on_postgres
async def test_with_tenancy_off_the_first_program_runs_for_any_role(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with role_of(database) as newcomer:
        box = Pillarbox(create_async_engine(newcomer), service="orders", environ={})
        async with box.running(), box.unit_of_work() as uow:
            await uow.repository(Order).save(Order.place("1"))
            await uow.commit()

    assert [record.tenant_id for record in await database.events()] == ["default"]
    assert warnings(caplog) == ""
    walled = "SELECT count(*) FROM pg_class WHERE relrowsecurity AND relname ~ '^outbox'"
    assert await database.scalar(walled) == 0


@two_drivers
async def test_the_projector_reads_every_tenants_events_by_its_own_policy(wall: Wall) -> None:
    engine = create_async_engine(wall.url_as(PROJECTOR))
    try:
        async with engine.connect() as connection:
            found = await connection.scalars(text("SELECT tenant_id FROM outbox ORDER BY 1"))
            assert found.all() == [ACME, GLOBEX]
            with pytest.raises(DBAPIError, match="permission denied"):
                await connection.execute(text("SELECT 1 FROM shop_orders"))
    finally:
        await engine.dispose()

    bypass = f"SELECT bool_or(rolbypassrls OR rolsuper) FROM pg_roles WHERE rolname = '{PROJECTOR}'"
    assert wall.rows(bypass) == [(False,)]
