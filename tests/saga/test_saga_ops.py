"""Operators resume, cancel, compensate and skip; each act is audited and carried out by the saga."""

from uuid import uuid4

import pytest
from sqlalchemy import select

from pillarbox.errors import InvalidRequest, SagaNotOpen, SagaUnknown, TenantMismatch
from pillarbox.ops import SagaFilter, SagaOps, read_saga_gauges
from pillarbox.saga.metrics import SagaMetrics
from pillarbox.schema.tables import pillarbox_audit
from tests.saga.shop import Shop, careful_order, place_order
from tests.support.database import Database, on

HERE = on("postgres18+psycopg", "sqlite+aiosqlite")


@HERE
async def test_a_saga_that_waits_for_ever_is_compensated_skipped_cancelled_or_resumed(
    database: Database,
) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    orders = ["to-compensate", "to-skip", "to-cancel", "to-resume"]
    for order_id in orders:  # one after the other, so that their ids rise
        await shop.order(order_id)
        await shop.settle("saga-place-order", "inventory")
    ops = SagaOps(database.engine, actor="jane")
    rows = [saga.saga_id for saga in await ops.sagas()][::-1]
    acts = (ops.compensate, ops.skip, ops.cancel, ops.resume)
    assert {gauge.labels: gauge.value for gauge in await read_saga_gauges(ops)} == {
        (("saga", "place-order"), ("state", "running")): 4,
        (("saga", "place-order"), ("state", "compensating")): 0,
        (("saga", "place-order"), ("state", "stuck")): 0,
    }

    for saga_id, act in zip(rows, acts, strict=True):
        done = await act(saga_id, reason="because")
        assert done.affected == 1
    await shop.settle("saga-place-order", "inventory")

    found = {str(saga_id): await ops.show(saga_id) for saga_id in rows}
    states = [details.saga.state for details in found.values()]
    assert states == ["COMPENSATED", "COMPLETED", "CANCELLED", "RUNNING"]
    outcomes = [
        {f"{step.step} {step.part}": step.outcome for step in details.steps}
        for details in found.values()
    ]
    assert outcomes == [
        {"reserve do": "ok", "charge do": "abandoned", "reserve undo": "ok"},
        {"reserve do": "ok", "charge do": "skipped"},
        {"reserve do": "ok", "charge do": "abandoned"},
        {"reserve do": "ok", "charge do": None},
    ]
    assert len(found[str(rows[3])].steps[-1].messages) == 2  # it was sent again
    assert await shop.statuses() == {
        "to-compensate": "REJECTED: charge abandoned",
        "to-skip": "CONFIRMED",
        "to-cancel": "PENDING",
        "to-resume": "PENDING",
    }
    async with database.sessions() as session:
        audit = (await session.execute(select(pillarbox_audit))).all()
    told = {(row.action, row.actor, row.reason) for row in audit}
    names = ("compensate", "skip", "cancel", "resume")
    assert told == {(name, "jane", "because") for name in names}
    assert audit[0].subject["step"] == "charge"


@HERE
async def test_acts_on_what_has_ended_or_is_not_there_are_refused_and_change_nothing(
    shop: Shop,
) -> None:
    await shop.order("o-1")
    await shop.settle()
    row, ops = await shop.row(), SagaOps(shop.database.engine, actor="jane")

    with pytest.raises(SagaNotOpen, match="is COMPLETED, and cancel does nothing there"):
        await ops.cancel(row.saga_id, reason="too late")
    with pytest.raises(SagaUnknown, match="tenant 'default' has no saga"):
        await ops.resume(uuid4(), reason="who")
    with pytest.raises(SagaUnknown):
        await ops.show(row.saga_id, tenant_id="other")
    with pytest.raises(InvalidRequest, match="reason is empty"):
        await ops.skip(row.saga_id, reason=" ")
    with pytest.raises(InvalidRequest, match="state is 'DONE'"):
        SagaFilter(state="DONE")
    with pytest.raises(InvalidRequest, match="limit is 0"):
        await ops.sagas(limit=0)
    with pytest.raises(TenantMismatch):
        await SagaOps(shop.database.engine, actor="jane", tenant_id="acme").sagas(
            SagaFilter(tenant_id="other")
        )
    assert (await shop.row()).revision == row.revision
    assert await shop.database.scalar("SELECT count(*) FROM pillarbox_audit") == 0
    assert await ops.sagas() == []
    (listed,) = await ops.sagas(SagaFilter(state="COMPLETED", name="place-order"))
    assert (listed.saga_id, listed.waits_for) == (row.saga_id, None)


@HERE
async def test_a_wish_comes_before_a_reply_that_arrives_at_the_same_time(shop: Shop) -> None:
    await shop.order("o-1")
    await shop.settle("saga-place-order")
    await shop.settle("inventory")  # the reply is on the bus
    row, ops = await shop.row(), SagaOps(shop.database.engine, actor="jane")
    await ops.cancel(row.saga_id, reason="the customer called")

    await shop.settle()

    assert (await shop.row()).state == "CANCELLED"
    assert await shop.strays() == ["ended"]
    assert await shop.statuses() == {"o-1": "PENDING"}


@on("sqlite+aiosqlite")
async def test_ends_and_replies_are_counted_after_the_commit(database: Database) -> None:
    metrics = SagaMetrics()
    shop = Shop(database, lambda box, _: place_order(box, metrics))
    await shop.clear()
    shop.refuses.add("o-2")
    await shop.order("o-1", "o-2", "o-3")

    await shop.settle()

    found = {
        (
            sample.name.removeprefix("pillarbox_saga_"),
            dict(sample.labels).get("outcome"),
        ): sample.value
        for sample in metrics.snapshot()
        if sample.value
    }
    assert found == {
        ("started_total", None): 3,
        ("finished_total", "completed"): 2,
        ("finished_total", "compensated"): 1,
        ("replies_total", "taken"): 5,
    }


@on("sqlite+aiosqlite")
async def test_an_instance_is_drawn_as_far_as_it_is(database: Database) -> None:
    shop = Shop(database, careful_order)
    await shop.clear()
    shop.refuses.add("pay o-1")
    await shop.order("o-1")
    await shop.settle("saga-place-order", "inventory")
    ops = SagaOps(database.engine, actor="jane")
    row = await shop.row()
    assert (await ops.show(row.saga_id)).drawing.text() == (
        f"place-order 1 {row.saga_id}: RUNNING\n  1. reserve  do ok\n  2. charge   do awaited"
    )

    await shop.settle()

    drawing = (await ops.show(row.saga_id)).drawing
    assert drawing.text() == (
        f"place-order 1 {row.saga_id}: COMPENSATED, charge failed\n"
        "  1. reserve  do ok, undo ok\n"
        "  2. charge   do failed"
    )
    assert drawing.mermaid() == (
        "flowchart LR\n"
        '    s0["reserve: ok"]\n'
        '    s1["charge: failed"]\n'
        '    u0["undo reserve: ok"]\n'
        '    state(["COMPENSATED, charge failed"])\n'
        "    s0 --> s1 --> u0 --> state"
    )
