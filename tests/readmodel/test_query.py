"""The query side: rows for one tenant, and waiting for one's own write."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from pillarbox import Pillarbox, ReadDAO, SqlAlchemyOutbox, tenant, wait_until_reached
from pillarbox.errors import InvalidRequest, ReadModelBehind, ReadModelUnknown, TenantRequired
from pillarbox.tenancy import Tenancy
from tests.readmodel.bank import Bank, running
from tests.readmodel.rig import Accounts, Deposited, Opened, Rig
from tests.readmodel.test_log import begun
from tests.support.database import on, on_postgres

on_two = on("postgres18+asyncpg", "sqlite+aiosqlite")
SOON = timedelta(seconds=10)


@on_two
async def test_a_dao_reads_rows_of_its_tenant_alone(rig: Rig) -> None:
    await rig.record(Opened("a", "ann"), Opened("b", "bob"), tenant_id="acme")
    await rig.record(Opened("a", "eve"), tenant_id="globex")
    await rig.runner().drain()

    async with rig.database.sessions() as session:
        acme = ReadDAO(session, Accounts, tenant_id="acme")
        row, missing = await acme.get("a"), await acme.get("x")
        found = await acme.find(status="OPEN")
        more = await acme.find(status="OPEN", after="a", limit=1)

    assert row is not None
    assert (row["owner"], missing) == ("ann", None)
    assert [row["account_id"] for row in found] == ["a", "b"]
    assert [row["account_id"] for row in more] == ["b"]


@on_two
async def test_a_query_that_cannot_be_meant_is_refused(rig: Rig) -> None:
    async with rig.database.sessions() as session:
        dao = ReadDAO(session, Accounts)
        with pytest.raises(InvalidRequest, match="limit"):
            await dao.find(limit=0)
        with pytest.raises(InvalidRequest, match="colour is no column"):
            await dao.find(colour="red")


@on_two
async def test_a_caller_waits_for_its_own_write(rig: Rig) -> None:
    runner = await begun(rig)
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run_forever())
        (event_id,) = await rig.record(Deposited("a", 5))

        async with rig.database.sessions() as session:
            await wait_until_reached(session, Accounts, event_id, within=SOON)
            row = await ReadDAO(session, Accounts).get("a")
        runner.stop()

    assert row is not None
    assert row["cents"] == 5


@on_two
async def test_a_caller_waits_for_the_event_of_its_context_s_tenant(rig: Rig) -> None:
    """It was once looked for under the tenant `default`, and never found."""
    (event_id,) = await rig.record(Deposited("a", 5), tenant_id="acme")
    await rig.runner().drain()

    async with rig.database.sessions() as session:
        with tenant("acme"):
            await wait_until_reached(session, Accounts, event_id, within=timedelta(0))
        with pytest.raises(TenantRequired, match="waiting for a model"):
            await wait_until_reached(session, Accounts, event_id, tenancy=Tenancy(required=True))


@on_two
async def test_the_sessions_of_an_application_know_whether_a_tenant_is_required(rig: Rig) -> None:
    environ = {"PILLARBOX_TENANCY": "required"}
    box = Pillarbox(rig.database.engine, service="bank", environ=environ)

    async with box.session_factory() as session:
        with pytest.raises(TenantRequired, match="waiting for a model"):
            await wait_until_reached(session, Accounts, uuid4())
        with pytest.raises(TenantRequired, match="reading a model"):
            ReadDAO(session, Accounts)


@on_two
async def test_waiting_ends_with_the_time(rig: Rig) -> None:
    await begun(rig)
    (event_id,) = await rig.record(Deposited("a", 5))

    async with rig.database.sessions() as session:
        with pytest.raises(ReadModelBehind, match=event_id):
            await wait_until_reached(session, Accounts, event_id, within=timedelta(0))


@on_postgres
async def test_an_event_in_a_gap_is_not_reached_when_later_ones_are(rig: Rig) -> None:
    runner = await begun(rig)
    async with rig.slow_transaction() as slow:
        (late,) = await rig.add(slow, Deposited("slow", 3))
        await SqlAlchemyOutbox(slow).flush()
        await rig.record(Deposited("quick", 1))
        await runner.drain()
        await slow.commit()

    async with rig.database.sessions() as session:
        with pytest.raises(ReadModelBehind):
            await wait_until_reached(session, Accounts, late, within=timedelta(0))
        await runner.drain()
        await wait_until_reached(session, Accounts, late, within=timedelta(0))


@on_two
async def test_an_event_of_a_held_key_is_not_reached(rig: Rig) -> None:
    runner = await begun(rig, retry_delay=60)
    runner.model.broken = True  # type: ignore[attr-defined]  # of the model of these tests
    (event_id,) = await rig.record(Opened("a", "ann"))
    await runner.drain()

    async with rig.database.sessions() as session:
        with pytest.raises(ReadModelBehind):
            await wait_until_reached(session, Accounts, event_id, within=timedelta(0))


@on_two
async def test_nobody_waits_for_a_model_that_has_not_begun(rig: Rig) -> None:
    (event_id,) = await rig.record(Deposited("a", 5))

    async with rig.database.sessions() as session:
        with pytest.raises(ReadModelUnknown):
            await wait_until_reached(session, Accounts, event_id)


@on_two
async def test_a_caller_waits_for_its_own_write_in_a_model_that_follows_a_subscription(
    rig: Rig,
) -> None:
    bank = Bank(rig)
    await bank.model.drain()
    bank.open("ann", 1)
    bank.send("Opened", "{}", 2)

    async with rig.database.sessions() as session:
        with pytest.raises(ReadModelBehind):
            await wait_until_reached(session, Accounts, "Opened-1", within=timedelta(0))
        async with running(bank.model):
            await wait_until_reached(session, Accounts, "Opened-1", within=SOON)
            async with session.begin():
                row = await ReadDAO(session, Accounts).get("a")
        with pytest.raises(ReadModelBehind):  # it cannot be applied
            await wait_until_reached(session, Accounts, "Opened-2", within=timedelta(0))

    assert row is not None
    assert row["owner"] == "ann"
