"""Read models behind the wall between tenants."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from pillarbox import ReadDAO, SqlAlchemyOutbox, tenant
from pillarbox.errors import InvalidConfig
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.rebuild import LogRebuild
from pillarbox.readmodel.runner import LogRunner
from pillarbox.schema.policies import tenant_policies
from pillarbox.tenancy import Tenancy
from tests.readmodel.rig import Accounts, Base, Deposited
from tests.tenancy.wall import OWNER, PROJECTOR, Wall, one_wall, wall, walls

__all__ = ["wall", "walls"]

KEPT = ReadModelConfig(history="kept")
TABLES = ("account", "account_shadow")


@pytest.fixture
async def bank(wall: Wall) -> AsyncIterator[Wall]:
    """The wall, with the tables of the model behind it too."""
    owner = create_async_engine(wall.url_as(OWNER))
    async with owner.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        for table in TABLES:
            for statement in tenant_policies(table):
                await connection.exec_driver_sql(statement)
            await connection.exec_driver_sql(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} "
                "TO pillarbox_app, pillarbox_projector"
            )
    yield wall
    async with owner.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.execute(text("DELETE FROM readmodel"))
    await owner.dispose()
    wall.admin.execute("DELETE FROM readmodel_applied")


async def record(wall: Wall, tenant_id: str, cents: int) -> None:
    with tenant(tenant_id):
        async with wall.sessions() as session:
            await SqlAlchemyOutbox(session).add(Deposited("a", cents), key="a", topic="t")
            await session.commit()


@one_wall
async def test_a_model_of_the_log_serves_every_tenant_and_shows_each_its_own(bank: Wall) -> None:
    for tenant_id, cents in (("acme", 5), ("globex", 7)):
        await record(bank, tenant_id, cents)
    engine = create_async_engine(bank.url_as(PROJECTOR))
    parts = Parts(async_sessionmaker(engine, expire_on_commit=False), KEPT)

    await LogRunner(Accounts(), parts).drain()
    await LogRebuild(Accounts(), parts).run()
    await engine.dispose()

    seen = {}
    for tenant_id in ("acme", "globex"):
        with tenant(tenant_id):
            async with bank.sessions() as session:
                dao = ReadDAO(session, Accounts, tenancy=Tenancy(required=True))
                seen[tenant_id] = [row["cents"] for row in await dao.find()]
                every = await session.execute(text("SELECT tenant_id FROM account"))
                assert list(every.scalars()) == [tenant_id]
    assert seen == {"acme": [5], "globex": [7]}


@one_wall
async def test_a_role_that_sees_one_tenant_cannot_run_a_model_of_the_log(bank: Wall) -> None:
    """It would take other tenants' events for not there, and pass them for ever."""
    await record(bank, "acme", 5)

    with pytest.raises(InvalidConfig, match="pillarbox_projector"):
        await LogRunner(Accounts(), Parts(bank.sessions, KEPT)).drain()
