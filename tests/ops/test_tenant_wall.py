"""Acts through row-level security: the projector's role acts, the application's may not."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pillarbox.ops.acts import Ops
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.state import State
from pillarbox.ops.views import Counted
from tests.ops.rows import Rows
from tests.tenancy.wall import PROJECTOR, Wall, two_drivers

WHY = "a decision"


@pytest.fixture
async def projector(wall: Wall) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(wall.url_as(PROJECTOR))
    yield engine
    await engine.dispose()


@pytest.fixture
async def behind_wall(wall: Wall) -> AsyncIterator[Rows]:
    engine = create_async_engine(wall.url_as(wall.admin.info.user))
    found = Rows(engine)
    await found.clear()
    yield found
    await found.clear()
    await engine.dispose()


@two_drivers
async def test_the_projectors_role_may_do_every_act(
    projector: AsyncEngine, behind_wall: Rows
) -> None:
    ops = Ops(projector, actor="jane")
    ids = [await behind_wall.blocking(n, key=f"k{n}", tenant_id=f"t{n}") for n in (1, 2, 3)]
    await behind_wall.behind(4, key="k2", tenant_id="t2")

    await ops.retry(ids[0], tenant_id="t1", reason=WHY)
    await ops.skip_all(EventFilter(tenant_id="t2"), reason=WHY)
    await ops.discard(ids[2], tenant_id="t3", reason=WHY)
    await ops.pause(tenant_id="t1", reason=WHY)

    assert await behind_wall.claimable() == [1, 4]
    assert len(await behind_wall.audit()) == 4


@two_drivers
async def test_the_applications_role_may_not_act(wall: Wall, behind_wall: Rows) -> None:
    event_id = await behind_wall.blocking(1, tenant_id="acme")

    with pytest.raises(DBAPIError, match="permission denied"):
        await Ops(wall.engine, actor="jane", tenant_id="acme").retry(event_id, reason=WHY)

    assert (await behind_wall.one(event_id))["status"] == "DEAD"


@two_drivers
async def test_the_applications_role_reads_its_own_tenant(wall: Wall, behind_wall: Rows) -> None:
    await behind_wall.event(1, "NEW", tenant_id="acme")
    await behind_wall.event(2, "NEW", tenant_id="other")
    await behind_wall.event(3, tenant_id="other")
    state = State(wall.engine, tenant_id="acme")

    overview = await state.overview()

    assert overview.by_tenant == {"acme": 1}
    assert [each.tenant_id for each in overview.oldest] == ["acme"]
    assert [event.seq for event in await state.events(status="NEW")] == [1]
    assert await State(wall.engine).backlog() == Counted(0)  # no tenant was named: fails closed


@two_drivers
async def test_an_operator_of_one_tenant_acts_inside_it_through_the_projectors_role(
    projector: AsyncEngine, behind_wall: Rows
) -> None:
    await behind_wall.blocking(1, tenant_id="acme")
    await behind_wall.blocking(2, tenant_id="other")

    done = await Ops(projector, actor="jane", tenant_id="acme").retry_all(
        EventFilter(everything=True), reason=WHY
    )

    assert done.affected == 1
    assert await behind_wall.claimable() == [1]
    assert [entry["tenant_id"] for entry in await behind_wall.audit()] == ["acme"]
