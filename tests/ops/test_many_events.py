"""An operator decides about all events that match."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pillarbox.errors import InvalidRequest
from pillarbox.ops import many_events
from pillarbox.ops.act import ActLimits
from pillarbox.ops.acts import Ops
from pillarbox.ops.filters import EventFilter
from pillarbox.outbox.release import Released
from pillarbox.schema.tables import outbox
from tests.ops.rows import Rows
from tests.support.database import Database, on

WHY = "the topic is retired"
EVERYTHING = EventFilter(everything=True)
NOW = datetime.now(UTC)


async def states(rows: Rows) -> dict[int, str]:
    return {row["seq"]: row["status"] for row in await rows.all(outbox)}


async def test_all_events_that_match_are_retried_and_no_other(ops: Ops, rows: Rows) -> None:
    for seq in range(1, 11):
        await rows.blocking(seq, "DEAD" if seq % 2 else "FAILED", key=f"order-{seq}")
    await rows.blocking(20, topic="other", key="order-20")
    await rows.event(21, "SENT")

    done = await ops.retry_all(EventFilter(topic="orders"), reason=WHY)

    assert done.affected == 10
    assert await states(rows) == dict.fromkeys(range(1, 11), "NEW") | {20: "DEAD", 21: "SENT"}


async def test_the_keys_of_all_skipped_events_go_on(ops: Ops, rows: Rows) -> None:
    for seq in range(1, 7):
        await rows.blocking(seq, key=f"order-{seq}")
        await rows.behind(seq + 100, key=f"order-{seq}")

    done = await ops.skip_all(EVERYTHING, reason=WHY)

    assert done.released == Released(moved=6, events=6)
    assert await rows.claimable() == list(range(101, 107))


async def test_all_events_of_one_key_are_discarded_together(ops: Ops, rows: Rows) -> None:
    await rows.blocking(1)
    await rows.event(2)
    await rows.behind(3)

    done = await ops.discard_all(EventFilter(key="order-1"), reason=WHY)

    assert done.affected == 2
    assert await states(rows) == {3: "NEW"}
    assert await rows.claimable() == [3]


async def test_each_batch_of_a_tenant_is_audited_and_names_the_act_it_continues(
    ops: Ops, rows: Rows
) -> None:
    for seq in range(1, 7):
        await rows.blocking(seq, key=f"order-{seq}", tenant_id="acme")
    await rows.blocking(7, tenant_id="other")

    done = await ops.discard_all(EventFilter(error_class="too-large"), reason=WHY)

    audit = await rows.audit()
    assert sorted((entry["tenant_id"], entry["affected"]) for entry in audit) == [
        ("acme", 2),
        ("acme", 4),
        ("other", 1),
    ]
    assert all(entry["subject"]["filter"] == {"error_class": "too-large"} for entry in audit)
    (first,) = (entry for entry in audit if entry["audit_id"] == done.audit_id)
    assert "continues" not in first["subject"]
    others = {e["subject"]["continues"] for e in audit if e is not first}
    assert others == {str(done.audit_id)}
    kept = sorted(event["seq"] for entry in audit for event in entry["subject"]["events"])
    assert kept == list(range(1, 8))


async def test_payloads_never_reach_the_audit(ops: Ops, rows: Rows) -> None:
    await rows.blocking(1)

    await ops.discard_all(EVERYTHING, reason=WHY)

    assert "secret" not in str(await rows.audit())


@pytest.mark.parametrize("tenant_id", ["acme", None])
async def test_an_act_that_reaches_nothing_is_audited_too(
    ops: Ops, rows: Rows, tenant_id: str | None
) -> None:
    done = await ops.skip_all(EventFilter(tenant_id=tenant_id, topic="x"), reason=WHY)

    (entry,) = await rows.audit()
    assert (done.affected, entry["affected"]) == (0, 0)
    assert (entry["tenant_id"], entry["audit_id"]) == (tenant_id or "*", done.audit_id)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tenant_id": "acme"}, {1}),
        ({"topic": "bills"}, {2}),
        ({"event_type": "OrderPaid"}, {3}),
        ({"key": "order-4"}, {4}),
        ({"error_class": "expired"}, {5}),
        ({"before": NOW - timedelta(hours=1)}, {6}),
        ({"after": NOW - timedelta(hours=1), "tenant_id": "acme"}, {1}),
        ({"tenant_id": "acme", "topic": "bills"}, set()),
        ({"everything": True}, {1, 2, 3, 4, 6}),
    ],
)
@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_a_filter_matches_what_it_names(
    ops: Ops, rows: Rows, given: dict[str, Any], expected: set[int]
) -> None:
    await rows.event(1, tenant_id="acme")
    await rows.event(2, topic="bills")
    await rows.event(3, event_type="OrderPaid")
    await rows.event(4, key="order-4")
    await rows.event(5, error_class="expired")
    await rows.event(6, created_at=NOW - timedelta(hours=2))

    await ops.retry_all(EventFilter(**given), reason=WHY)

    assert {seq for seq, status in (await states(rows)).items() if status == "NEW"} == expected


@pytest.mark.parametrize(
    "given",
    [
        {"tenant_id": "no tenant"},
        {"tenant_id": "*"},
        {"topic": ""},
        {"key": "   "},
        {"error_class": "x" * 256},
        {"before": datetime(2026, 1, 1)},  # noqa: DTZ001 - a naive time is what is refused
        {"before": NOW, "after": NOW},
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        EventFilter(**given)


async def test_a_filter_that_names_nothing_is_refused(ops: Ops, rows: Rows) -> None:
    await rows.blocking(1)

    with pytest.raises(InvalidRequest, match="everything=True"):
        await ops.discard_all(EventFilter(), reason=WHY)

    assert await states(rows) == {1: "DEAD"}
    assert await rows.audit() == []


async def test_skipped_events_are_reached_by_their_error_class_alone(ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(1)
    await ops.skip(event_id, reason=WHY)

    passed_over = await ops.retry_all(EVERYTHING, reason=WHY)
    again = await ops.skip_all(EventFilter(error_class="skipped"), reason=WHY)
    reached = await ops.retry_all(EventFilter(error_class="skipped"), reason=WHY)

    assert (passed_over.affected, again.affected, reached.affected) == (0, 0, 1)


async def test_events_in_open_claims_are_left_and_reported(database: Database, rows: Rows) -> None:
    for seq in (1, 2, 3):
        await rows.blocking(seq, key=f"order-{seq}")
    await rows.claim(2)
    limits = ActLimits(wait=timedelta(0))

    done = await Ops(database.engine, actor="jane", limits=limits).retry_all(EVERYTHING, reason=WHY)

    assert (done.affected, done.in_flight) == (2, 1)
    assert await states(rows) == {1: "NEW", 2: "DEAD", 3: "NEW"}


async def test_events_in_open_claims_are_waited_for(ops: Ops, rows: Rows) -> None:
    await rows.blocking(1)
    claim_id = await rows.claim(1)

    async with asyncio.TaskGroup() as tasks:
        act = tasks.create_task(ops.retry_all(EVERYTHING, reason=WHY))
        await asyncio.sleep(0)
        await rows.end(claim_id)

    assert (act.result().affected, act.result().in_flight) == (1, 0)


async def test_an_act_reads_page_after_page(
    ops: Ops, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_events, "PAGE", 3)
    for seq in range(1, 9):
        await rows.event(seq, tenant_id=f"tenant-{seq % 3}", key=f"order-{seq}")

    done = await ops.retry_all(EVERYTHING, reason=WHY)

    assert done.affected == 8
    assert set((await states(rows)).values()) == {"NEW"}


async def test_two_operators_on_the_same_events_do_the_work_once(
    database: Database, rows: Rows
) -> None:
    for seq in range(1, 41):
        await rows.blocking(seq, key=f"order-{seq}")
        await rows.behind(seq + 100, key=f"order-{seq}")
    limits = ActLimits(batch=5)
    jane = Ops(database.engine, actor="jane", limits=limits)
    joe = Ops(database.engine, actor="joe", limits=limits)

    done = await asyncio.gather(
        jane.discard_all(EVERYTHING, reason=WHY), joe.discard_all(EVERYTHING, reason=WHY)
    )

    assert sum(each.affected for each in done) == 40
    assert sum(each.released.events for each in done) == 40
    assert await rows.claimable() == list(range(101, 141))
    assert sum(entry["affected"] for entry in await rows.audit()) == 40


async def test_an_operator_of_one_tenant_matches_that_tenant_alone(
    database: Database, rows: Rows
) -> None:
    await rows.event(1, tenant_id="acme")
    await rows.event(2, tenant_id="other")

    done = await Ops(database.engine, actor="jane", tenant_id="acme").retry_all(
        EVERYTHING, reason=WHY
    )

    assert done.affected == 1
    assert await states(rows) == {1: "NEW", 2: "DEAD"}


def test_limits_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="batch"):
        ActLimits(batch=0)
    with pytest.raises(InvalidRequest, match="chunk"):
        ActLimits(chunk=0)
