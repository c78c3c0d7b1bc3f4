"""An operator decides about one event; the audit knows who, what and why."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import select

from pillarbox.errors import (
    EventInFlight,
    EventNotTroubled,
    EventUnknown,
    InvalidRequest,
    TenantMismatch,
)
from pillarbox.ops.act import ActLimits
from pillarbox.ops.acts import Ops
from pillarbox.outbox.release import Released
from pillarbox.outbox.wakeup import CHANNEL, wakeup_of
from pillarbox.schema.tables import outbox
from tests.ops.rows import Rows
from tests.schema.rows import MEMBER
from tests.support.database import Database, on, on_postgres

WHY = "the schema was registered"
AT_ONCE = ActLimits(wait=timedelta(0))
ACTS = ("retry", "skip", "discard")


@pytest.mark.parametrize("status", ["FAILED", "DEAD"])
async def test_a_retried_event_is_new_and_its_key_stays_blocked_behind_it(
    ops: Ops, rows: Rows, status: str
) -> None:
    event_id = await rows.blocking(5, status)
    await rows.behind(6)

    done = await ops.retry(event_id, reason=WHY)

    row = await rows.one(event_id)
    assert (row["status"], row["retry_count"]) == ("NEW", 0)
    assert abs(row["retry_after"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert (row["error_class"], row["error_message"]) == (None, None)
    assert await rows.claimable() == [5]
    assert await rows.blocked() == {"order-1": (event_id, 5)}
    assert (done.action, done.affected, done.released) == ("retry", 1, Released())


@on_postgres
async def test_a_retried_event_is_in_the_feed_from_the_transaction_that_retried_it(
    database: Database, ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    before = await database.scalar("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")

    await ops.retry(event_id, reason=WHY)

    found = "SELECT seq FROM outbox WHERE txid >= CAST(CAST(:before AS text) AS xid8)"
    assert await database.scalar(found, {"before": str(before)}) == 5


@pytest.mark.parametrize("status", ["FAILED", "DEAD"])
async def test_a_skipped_event_stays_dead_and_its_key_goes_on(
    ops: Ops, rows: Rows, status: str
) -> None:
    event_id = await rows.blocking(5, status)
    await rows.behind(6, 7)

    done = await ops.skip(event_id, reason=WHY)

    row = await rows.one(event_id)
    assert (row["status"], row["error_class"]) == ("DEAD", "skipped")
    assert row["error_message"] == "too-large: 1 MB"
    assert row["retry_after"] is None
    assert await rows.claimable() == [6, 7]
    assert done.released == Released(moved=1, events=2)


async def test_a_discarded_event_is_gone_and_its_key_goes_on(ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(5)
    await rows.behind(6)

    await ops.discard(event_id, reason=WHY)

    assert await rows.claimable() == [6]
    assert [row["seq"] for row in await rows.all(outbox)] == [6]


@pytest.mark.parametrize("act", ACTS)
async def test_the_audit_tells_who_what_why_and_what_the_event_was(
    ops: Ops, rows: Rows, act: str
) -> None:
    event_id = await rows.blocking(5, tenant_id="acme")

    done = await getattr(ops, act)(str(event_id), tenant_id="acme", reason=f"  {WHY} ")

    (entry,) = await rows.audit()
    assert (entry["tenant_id"], entry["audit_id"]) == ("acme", done.audit_id)
    assert (entry["actor"], entry["action"], entry["reason"]) == ("jane", act, WHY)
    assert entry["affected"] == 1
    assert entry["subject"] == {
        "events": [
            {
                "id": str(event_id),
                "event_type": "OrderPlaced",
                "topic": "orders",
                "key": "order-1",
                "seq": 5,
                "status": "DEAD",
                "retry_count": 5,
                "error_class": "too-large",
                "error_message": "1 MB",
            }
        ]
    }


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_wakes_the_projector_of_this_process(
    database: Database, ops: Ops, rows: Rows, act: str
) -> None:
    event_id = await rows.blocking(5)

    with wakeup_of(database.engine).listen() as listener:
        await getattr(ops, act)(event_id, reason=WHY)

        await asyncio.wait_for(listener.wait(), timeout=30)


async def test_a_retried_event_that_had_expired_is_sent_all_the_same(ops: Ops, rows: Rows) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    event_id = await rows.event(5, error_class="expired", expires_at=past)

    await ops.retry(event_id, reason=WHY)

    assert (await rows.one(event_id))["expires_at"] is None


async def test_a_retried_event_keeps_an_expiry_that_did_not_end_it(ops: Ops, rows: Rows) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    event_id = await rows.event(5, expires_at=later)

    await ops.retry(event_id, reason=WHY)

    assert (await rows.one(event_id))["expires_at"] == later


async def test_another_events_block_is_left_alone(ops: Ops, rows: Rows) -> None:
    blocker = await rows.blocking(7)
    other = await rows.event(5, error_class="expired")
    await rows.behind(8)

    await ops.discard(other, reason=WHY)

    assert await rows.blocked() == {"order-1": (blocker, 7)}
    assert await rows.claimable() == []


@pytest.mark.parametrize("act", ACTS)
async def test_an_unknown_event_is_named(ops: Ops, rows: Rows, act: str) -> None:
    event_id = await rows.blocking(5, tenant_id="acme")

    with pytest.raises(EventUnknown) as raised:
        await getattr(ops, act)(event_id, tenant_id="other", reason=WHY)

    assert (raised.value.tenant_id, raised.value.event_id) == ("other", str(event_id))
    assert await rows.audit() == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("status", ["NEW", "SENT"])
async def test_an_event_that_is_not_in_trouble_is_left_as_it_is(
    ops: Ops, rows: Rows, act: str, status: str
) -> None:
    event_id = await rows.event(5, status)
    before = await rows.one(event_id)

    with pytest.raises(EventNotTroubled) as raised:
        await getattr(ops, act)(event_id, reason=WHY)

    assert raised.value.status == status
    assert await rows.one(event_id) == before
    assert await rows.audit() == []


async def test_an_event_is_skipped_once(ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(5)
    await ops.skip(event_id, reason=WHY)

    with pytest.raises(EventNotTroubled, match="skipped already"):
        await ops.skip(event_id, reason=WHY)


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 2001, "a\x00b", "\ud800"])
async def test_a_reason_that_nobody_could_read_is_refused(
    ops: Ops, rows: Rows, reason: str
) -> None:
    event_id = await rows.blocking(5)

    with pytest.raises(InvalidRequest, match="reason"):
        await ops.skip(event_id, reason=reason)

    assert (await rows.one(event_id))["error_class"] == "too-large"


@pytest.mark.parametrize("actor", ["", "   ", "x" * 256])
def test_an_actor_has_a_name(actor: str) -> None:
    with pytest.raises(InvalidRequest, match="actor"):
        Ops(None, actor=actor)  # type: ignore[arg-type]  # refused before the engine is used


@pytest.mark.parametrize("event_id", ["", "order-1", 7])
async def test_an_id_that_is_no_uuid_is_refused(ops: Ops, rows: Rows, event_id: str) -> None:
    with pytest.raises(InvalidRequest, match="event_id"):
        await ops.retry(event_id, reason=WHY)


@pytest.mark.parametrize("act", ACTS)
async def test_an_event_in_an_open_claim_is_not_touched(
    database: Database, rows: Rows, act: str
) -> None:
    event_id = await rows.blocking(5)
    claim_id = await rows.claim(4, 5)
    ops = Ops(database.engine, actor="jane", limits=AT_ONCE)

    with pytest.raises(EventInFlight) as raised:
        await getattr(ops, act)(event_id, reason=WHY)

    assert (raised.value.claim_id, raised.value.member_id) == (str(claim_id), str(MEMBER))
    assert str(claim_id) in str(raised.value)
    assert (await rows.one(event_id))["error_class"] == "too-large"
    assert await rows.audit() == []


async def test_an_event_that_is_being_sent_is_in_flight_rather_than_new(
    database: Database, rows: Rows
) -> None:
    event_id = await rows.event(5, "NEW")
    await rows.claim(5)

    with pytest.raises(EventInFlight):
        await Ops(database.engine, actor="jane", limits=AT_ONCE).discard(event_id, reason=WHY)


async def test_an_act_waits_until_the_claim_has_ended(ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(5)
    claim_id = await rows.claim(5)

    async with asyncio.TaskGroup() as tasks:
        act = tasks.create_task(ops.skip(event_id, reason=WHY))
        await asyncio.sleep(0)
        assert not act.done()
        await rows.end(claim_id)

    assert act.result().affected == 1


@pytest.mark.parametrize("closed", ["it ended", "its lease expired"])
async def test_a_claim_that_is_not_open_is_no_obstacle(
    database: Database, rows: Rows, closed: str
) -> None:
    event_id = await rows.blocking(5)
    over = closed == "its lease expired"
    claim_id = await rows.claim(5, leased=timedelta(seconds=-1 if over else 60))
    if not over:
        await rows.end(claim_id)

    done = await Ops(database.engine, actor="jane", limits=AT_ONCE).retry(event_id, reason=WHY)

    assert done.affected == 1


@on_postgres
async def test_an_event_whose_row_another_transaction_has_is_waited_for(
    database: Database, rows: Rows, ops: Ops
) -> None:
    event_id = await rows.blocking(5)
    locking = select(outbox.c.seq).where(outbox.c.id == event_id).with_for_update()

    async with asyncio.TaskGroup() as tasks, database.engine.connect() as other:
        await other.execute(locking)
        with pytest.raises(EventInFlight, match="another transaction"):
            await Ops(database.engine, actor="joe", limits=AT_ONCE).skip(event_id, reason=WHY)
        act = tasks.create_task(ops.skip(event_id, reason=WHY))

    assert act.result().affected == 1


@pytest.mark.parametrize("first", ACTS)
@pytest.mark.parametrize("second", ACTS)
async def test_of_two_operators_on_one_event_one_decides(
    database: Database, rows: Rows, first: str, second: str
) -> None:
    event_id = await rows.blocking(5)
    jane = Ops(database.engine, actor="jane")
    joe = Ops(database.engine, actor="joe")

    answers = await asyncio.gather(
        getattr(jane, first)(event_id, reason=WHY),
        getattr(joe, second)(event_id, reason=WHY),
        return_exceptions=True,
    )

    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(answer, EventNotTroubled | EventUnknown) for answer in refused)
    # A skipped event may still be retried or discarded by the slower operator.
    assert len(await rows.audit()) == 2 - len(refused)
    assert refused or {first, second} != {"retry", "discard"}


async def test_an_operator_of_one_tenant_reaches_that_tenant_alone(
    database: Database, rows: Rows
) -> None:
    own = await rows.blocking(5, tenant_id="acme")
    foreign = await rows.blocking(6, tenant_id="other")
    ops = Ops(database.engine, actor="jane", tenant_id="acme")

    await ops.retry(own, reason=WHY)
    with pytest.raises(TenantMismatch):
        await ops.retry(foreign, tenant_id="other", reason=WHY)
    with pytest.raises(EventUnknown):
        await ops.retry(foreign, reason=WHY)

    assert (await rows.one(own))["status"] == "NEW"
    assert (await rows.one(foreign))["status"] == "DEAD"


async def test_an_act_that_fails_leaves_no_audit_and_no_change(
    database: Database, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    taken = uuid4()
    ops = Ops(database.engine, actor="jane", new_id=lambda: taken)
    await ops.pause(tenant_id="default", reason=WHY)

    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await ops.discard(event_id, reason=WHY)

    assert (await rows.one(event_id))["status"] == "DEAD"
    assert len(await rows.audit()) == 1


@on("postgres18+psycopg")
async def test_projectors_of_other_processes_are_told_at_the_commit(
    database: Database, rows: Rows, ops: Ops
) -> None:
    event_id = await rows.blocking(5)
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as listening:
        await listening.execute(f"LISTEN {CHANNEL}".encode())

        await ops.retry(event_id, reason=WHY)

        told = [heard.channel async for heard in listening.notifies(timeout=30, stop_after=1)]
    assert told == [CHANNEL]
