"""Parked messages behind the wall: whoever runs the platform sees all, a tenant's operator its own."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pillarbox.errors import ParkedUnknown, TenantMismatch
from pillarbox.ops import ParkedFilter, ParkedOps
from tests.tenancy.wall import PROJECTOR, Wall, two_drivers

WHY = "a decision"
# What could not be read names no tenant that could be trusted: it is kept under `default`.
UNREADABLE, OF_ACME, OF_OTHER = (UUID(int=n) for n in (1, 2, 3))
FILL = """
    INSERT INTO inbox_parked (tenant_id, parked_id, state, reason, consumer, message_id, topic)
    VALUES ('default', '00000000-0000-0000-0000-000000000001', 'parked', 'malformed', 'c', 'm1', 't'),
        ('acme', '00000000-0000-0000-0000-000000000002', 'parked', 'failed', 'c', 'm2', 't'),
        ('other', '00000000-0000-0000-0000-000000000003', 'parked', 'failed', 'c', 'm3', 't')
"""


@pytest.fixture
def parked(wall: Wall) -> Wall:
    for statement in ("DELETE FROM inbox_parked", "DELETE FROM pillarbox_audit", FILL):
        wall.admin.execute(statement.encode())
    return wall


@pytest.fixture
async def operators(parked: Wall) -> AsyncIterator[AsyncEngine]:
    """The rights with which operators act."""
    engine = create_async_engine(parked.url_as(PROJECTOR))
    yield engine
    await engine.dispose()


@two_drivers
async def test_the_platforms_operator_sees_and_decides_about_what_could_not_be_read(
    parked: Wall, operators: AsyncEngine
) -> None:
    ops = ParkedOps(operators, actor="jane")

    listed = {message.parked_id for message in await ops.messages()}
    shown = await ops.show(UNREADABLE)
    await ops.redrive(UNREADABLE, reason=WHY)
    await ops.discard(OF_ACME, tenant_id="acme", reason=WHY)

    assert listed == {UNREADABLE, OF_ACME, OF_OTHER}
    assert (shown.message.tenant_id, shown.message.reason) == ("default", "malformed")
    assert sorted(parked.rows("SELECT tenant_id, state FROM inbox_parked")) == [
        ("default", "waiting"),
        ("other", "parked"),
    ]
    assert sorted(parked.rows("SELECT tenant_id, action FROM pillarbox_audit")) == [
        ("acme", "discard"),
        ("default", "redrive"),
    ]


@two_drivers
async def test_the_operator_of_a_tenant_reaches_its_messages_and_no_others(
    parked: Wall, operators: AsyncEngine
) -> None:
    ops = ParkedOps(operators, actor="jane", tenant_id="acme")

    listed = [message.parked_id for message in await ops.messages()]
    done = await ops.discard_all(ParkedFilter(everything=True), reason=WHY)
    with pytest.raises(ParkedUnknown):
        await ops.show(UNREADABLE)
    with pytest.raises(TenantMismatch):
        await ops.redrive(UNREADABLE, tenant_id="default", reason=WHY)

    assert listed == [OF_ACME]
    assert done.affected == 1
    assert sorted(parked.rows("SELECT tenant_id FROM inbox_parked")) == [("default",), ("other",)]


@two_drivers
async def test_the_applications_role_reads_its_own_tenant_and_may_not_act(parked: Wall) -> None:
    inside = ParkedOps(parked.engine, actor="jane", tenant_id="acme")

    assert [message.parked_id for message in await inside.messages()] == [OF_ACME]
    assert list(await ParkedOps(parked.engine, actor="jane").messages()) == []  # fails closed
    with pytest.raises(DBAPIError, match="permission denied"):
        await inside.discard(OF_ACME, reason=WHY)

    assert len(parked.rows("SELECT 1 FROM inbox_parked")) == 3
