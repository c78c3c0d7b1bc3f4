"""Tenants and topics are paused, resumed and slowed down, and the audit knows."""

from typing import Any

import pytest

from pillarbox.errors import InvalidRequest, TenantMismatch
from pillarbox.ops.acts import Ops
from pillarbox.schema.tables import outbox_control
from tests.ops.rows import Rows
from tests.support.database import Database

WHY = "the broker is being moved"
PLACES: list[tuple[dict[str, str], tuple[str, str]]] = [
    ({"tenant_id": "acme"}, ("acme", "*")),
    ({"topic": "orders"}, ("*", "orders")),
    ({"tenant_id": "acme", "topic": "orders"}, ("acme", "orders")),
]


async def controls(rows: Rows) -> dict[tuple[str, str], tuple[int, int | None]]:
    return {
        (row["tenant_id"], row["topic"]): (row["paused"], row["events_per_second"])
        for row in await rows.all(outbox_control)
    }


@pytest.mark.parametrize(("given", "place"), PLACES)
async def test_a_pause_is_a_row_that_resuming_removes(
    ops: Ops, rows: Rows, given: dict[str, str], place: tuple[str, str]
) -> None:
    paused = await ops.pause(**given, reason=WHY)
    seen = await controls(rows)

    resumed = await ops.resume(**given, reason="it is over")

    assert seen == {place: (1, None)}
    assert await controls(rows) == {}
    assert (paused.affected, resumed.affected) == (1, 1)


async def test_a_limit_outlives_a_pause(ops: Ops, rows: Rows) -> None:
    await ops.limit(50, topic="orders", reason=WHY)
    await ops.pause(topic="orders", reason=WHY)
    await ops.resume(topic="orders", reason=WHY)

    assert await controls(rows) == {("*", "orders"): (0, 50)}


async def test_a_pause_outlives_a_limit(ops: Ops, rows: Rows) -> None:
    await ops.limit(50, tenant_id="acme", reason=WHY)
    await ops.pause(tenant_id="acme", reason=WHY)
    await ops.limit(None, tenant_id="acme", reason=WHY)

    assert await controls(rows) == {("acme", "*"): (1, None)}


async def test_resuming_touches_no_event(ops: Ops, rows: Rows) -> None:
    await ops.pause(topic="orders", reason=WHY)
    event_id = await rows.event(6, "NEW", set_aside="key")
    await rows.block(event_id, 5)

    await ops.resume(topic="orders", reason=WHY)

    assert await rows.claimable() == []
    assert await rows.blocked() == {"order-1": (event_id, 5)}


@pytest.mark.parametrize(("given", "place"), PLACES)
async def test_every_change_is_audited(
    ops: Ops, rows: Rows, given: dict[str, Any], place: tuple[str, str]
) -> None:
    done = await ops.limit(50, **given, reason=WHY)

    (entry,) = await rows.audit()
    tenant_id, topic = place
    assert (entry["tenant_id"], entry["audit_id"]) == (tenant_id, done.audit_id)
    assert (entry["actor"], entry["action"], entry["reason"]) == ("jane", "limit", WHY)
    assert entry["subject"] == {"tenant_id": tenant_id, "topic": topic, "events_per_second": 50}
    assert entry["affected"] == 1


async def test_a_change_that_changes_nothing_says_so(ops: Ops, rows: Rows) -> None:
    await ops.pause(tenant_id="acme", reason=WHY)

    again = await ops.pause(tenant_id="acme", reason=WHY)
    other = await ops.resume(tenant_id="other", reason=WHY)

    assert (again.affected, other.affected) == (0, 0)
    assert [entry["affected"] for entry in await rows.audit()].count(0) == 2


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tenant_id": "*"},
        {"tenant_id": "no tenant"},
        {"topic": "*"},
        {"topic": ""},
        {"topic": "x" * 250},
        {"tenant_id": "acme", "reason": " "},
    ],
)
async def test_a_control_that_cannot_be_meant_is_refused(
    ops: Ops, rows: Rows, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await ops.pause(**{"reason": WHY} | given)

    assert await controls(rows) == {}
    assert await rows.audit() == []


@pytest.mark.parametrize("rate", [0, -1, 1.5, True, 2**31, "5"])
async def test_a_limit_is_a_whole_number_from_one(ops: Ops, rows: Rows, rate: Any) -> None:
    with pytest.raises(InvalidRequest, match="events_per_second"):
        await ops.limit(rate, tenant_id="acme", reason=WHY)


async def test_an_operator_of_one_tenant_controls_that_tenant_alone(
    database: Database, rows: Rows
) -> None:
    ops = Ops(database.engine, actor="jane", tenant_id="acme")

    await ops.pause(topic="orders", reason=WHY)
    with pytest.raises(TenantMismatch):
        await ops.pause(tenant_id="other", reason=WHY)

    assert await controls(rows) == {("acme", "orders"): (1, None)}
