"""Sagas behind the wall between tenants: each inside its own, and timers find those of all."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox import Pillarbox, SqlAlchemyOutbox, tenant
from pillarbox.database import make_engine
from pillarbox.ops import SagaOps
from pillarbox.projector.projector import OutboxProjector
from tests.saga.shop import Heard, OrderCreated, careful_order, quiet_bus
from tests.tenancy.wall import PROJECTOR, Wall, wall, walls

__all__ = ["wall", "walls"]

pytestmark = pytest.mark.parametrize("wall", ["postgres18+psycopg"], indirect=True)
TENANTS = text("SELECT tenant_id FROM saga UNION SELECT tenant_id FROM saga_step")
TABLES = ("saga", "saga_step", "saga_stray", "inbox", "inbox_parked", "consumer_tenant", "outbox")


@pytest.fixture
async def empty(wall: Wall) -> AsyncIterator[Wall]:
    def clear() -> None:
        for table in TABLES:
            wall.admin.execute(f"DELETE FROM {table}".encode())

    clear()
    yield wall
    clear()


async def test_a_tenant_sees_its_sagas_alone_and_timers_serve_all(empty: Wall) -> None:
    bus, heard = quiet_bus(), Heard()
    box = Pillarbox(empty.engine, bus, service="shop", environ={"PILLARBOX_TENANCY": "required"})
    careful_order(box, heard)
    for name in ("acme", "zoo"):
        with tenant(name):
            async with box.session_factory() as session:
                await SqlAlchemyOutbox(session).add(OrderCreated("o-1", Decimal(1)), key="o-1")
                await session.commit()
    engine = make_engine(empty.url_as(PROJECTOR).render_as_string(hide_password=False))
    saga = box.consumers["saga-place-order"]
    await OutboxProjector(async_sessionmaker(engine), bus).drain()
    await saga.drain()
    assert sorted(empty.rows("SELECT tenant_id, state FROM saga")) == [
        ("acme", "RUNNING"),
        ("zoo", "RUNNING"),
    ]
    empty.admin.execute(b"UPDATE saga SET due_at = now() - interval '1 hour'")
    row = empty.rows("SELECT saga_id FROM saga WHERE tenant_id = 'zoo'")[0][0]
    await SagaOps(engine, actor="jane", tenant_id="zoo").cancel(row, reason="behind the wall")

    await saga.drain()

    assert sorted(empty.rows("SELECT tenant_id, state, tries FROM saga")) == [
        ("acme", "RUNNING", 2),
        ("zoo", "CANCELLED", 0),
    ]
    assert len(await SagaOps(engine, actor="jane").sagas()) == 1
    assert await SagaOps(engine, actor="jane", tenant_id="zoo").sagas() == []
    with tenant("zoo"):
        async with box.session_factory() as session:
            seen = await session.scalars(TENANTS)
            assert set(seen) == {"zoo"}
    await engine.dispose()
