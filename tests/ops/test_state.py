"""Reading the state: bounded, by tenant, and never 0 while a row waits."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from pillarbox.errors import EventUnknown, InvalidRequest, TenantMismatch
from pillarbox.ops.acts import Ops
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.state import State
from pillarbox.ops.views import Counted
from pillarbox.schema.tables import outbox_blocked_key, outbox_lease, outbox_member
from tests.ops.rows import Rows
from tests.schema.rows import MEMBER
from tests.support.database import Database

WHY = "a decision"
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def state(database: Database) -> State:
    return State(database.engine)


WAITING: dict[str, dict[str, Any]] = {
    "claimable": {},
    "behind a blocked key": {"set_aside": "key"},
    "due later": {"set_aside": "later", "deliver_at": NOW + HOUR},
    "being sent": {"status": "PUBLISHING"},
}


@pytest.mark.parametrize("how", WAITING)
async def test_the_backlog_is_never_0_while_a_row_waits(state: State, rows: Rows, how: str) -> None:
    await rows.event(1, **{"status": "NEW", **WAITING[how]})
    await rows.event(2, "SENT")

    assert await state.backlog() == Counted(1)
    assert await state.backlog("default") == Counted(1)
    assert await state.backlog("other") == Counted(0)
    assert (await state.overview()).by_tenant == {"default": 1}


async def test_an_event_in_an_open_claim_is_part_of_the_backlog(state: State, rows: Rows) -> None:
    await rows.event(1, "NEW")
    await rows.claim(1)

    assert await state.backlog() == Counted(1)


async def test_a_count_stops_at_its_cap_and_says_so(state: State, rows: Rows) -> None:
    for seq in range(1, 5):
        await rows.event(seq, "NEW", shard_hash=seq)
        await rows.event(seq + 10, "DEAD")
        await rows.event(seq + 20, "FAILED")

    for count in (state.backlog, state.dead, state.failed):
        assert await count(cap=3) == Counted(3, exact=False)
        assert await count("default", cap=3) == Counted(3, exact=False)
        assert await count(cap=4) == Counted(4)
    assert (str(Counted(4)), str(Counted(3000, exact=False))) == ("4", "at least 3,000")


async def test_a_skipped_event_is_no_longer_counted_as_dead(
    state: State, ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(1)
    await rows.event(2, error_class="expired")
    await ops.skip(event_id, reason=WHY)

    assert await state.dead() == Counted(1)
    assert {event.seq: event.skipped for event in await state.events()} == {1: True, 2: False}


OLD: dict[str, dict[str, Any]] = {
    "claimable": {"status": "NEW"},
    "behind a blocked key": {"status": "NEW", "set_aside": "key"},
    "failed": {"status": "FAILED"},
    "being sent": {"status": "PUBLISHING"},
    "overdue": {"status": "NEW", "set_aside": "later", "deliver_at": NOW - HOUR},
}


@pytest.mark.parametrize("how", OLD)
async def test_the_oldest_waiting_event_of_each_tenant_is_found(
    database: Database, state: State, rows: Rows, how: str
) -> None:
    await rows.event(1, created_at=NOW - HOUR, tenant_id="acme", **OLD[how])
    await rows.event(2, "NEW", tenant_id="acme", shard_hash=5)
    await rows.event(3, "NEW", tenant_id="other", created_at=NOW - 2 * HOUR, shard_hash=7)
    await rows.event(4, "SENT", tenant_id="done", created_at=NOW - 3 * HOUR)

    asked = datetime.now(UTC)
    found = await state.oldest()
    answered = datetime.now(UTC)
    own = await State(database.engine, tenant_id="acme").oldest()

    assert [(each.tenant_id, each.since) for each in found] == [
        ("other", NOW - 2 * HOUR),
        ("acme", NOW - HOUR),
    ]
    a_moment = timedelta(seconds=1)
    since = NOW - HOUR
    assert asked - since - a_moment <= found[1].age <= answered - since + a_moment
    assert [(each.tenant_id, each.since) for each in own] == [("acme", NOW - HOUR)]


async def test_an_event_that_is_not_due_is_not_old(state: State, rows: Rows) -> None:
    await rows.event(1, "NEW", set_aside="later", deliver_at=NOW + HOUR, created_at=NOW - HOUR)

    assert await state.oldest() == []


async def test_the_oldest_of_many_tenants_come_first(state: State, rows: Rows) -> None:
    for n in range(1, 6):
        await rows.event(n, "NEW", tenant_id=f"t{n}", shard_hash=n * 17, created_at=NOW - n * HOUR)

    assert [each.tenant_id for each in await state.oldest(tenants=2)] == ["t5", "t4"]


async def test_events_are_listed_by_live_state_newest_first(state: State, rows: Rows) -> None:
    for seq in (1, 2):
        await rows.event(seq, "NEW")
    await rows.event(3, "PUBLISHING")
    await rows.event(4, "FAILED")
    for seq in (5, 6, 7):
        await rows.event(seq, "DEAD")
    await rows.event(8, "SENT")
    await rows.event(9, "NEW", set_aside="key")
    await rows.claim(2)
    wanted = EventFilter(tenant_id="default", after=NOW - HOUR)

    listed = {
        status: [event.seq for event in await state.events(wanted, status=status)]
        for status in ("NEW", "PUBLISHING", "FAILED", "DEAD", "SENT")
    }

    assert listed == {
        "NEW": [9, 1],
        "PUBLISHING": [3, 2],
        "FAILED": [4],
        "DEAD": [7, 6, 5],
        "SENT": [8],
    }


async def test_a_list_goes_on_below_the_last_number(state: State, rows: Rows) -> None:
    for seq in range(1, 6):
        await rows.event(seq)

    first = await state.events(limit=2)
    second = await state.events(limit=2, below_seq=first[-1].seq)

    assert [event.seq for event in (*first, *second)] == [5, 4, 3, 2]


async def test_a_list_shows_errors_and_no_payload(state: State, rows: Rows) -> None:
    await rows.event(1, "FAILED")

    (event,) = await state.events(EventFilter(error_class="too-large"), status="FAILED")

    assert (event.error_class, event.error_message, event.retry_count) == ("too-large", "1 MB", 5)
    assert "secret" not in repr(event)


@pytest.mark.parametrize(
    "given",
    [
        {"status": "LOST"},
        {"status": "SENT"},
        {"status": "SENT", "matching": EventFilter(tenant_id="acme")},
        {"limit": 0},
        {"limit": 1001},
    ],
)
async def test_a_list_that_would_read_too_much_is_refused(
    state: State, rows: Rows, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        await state.events(**given)


async def test_an_event_shows_what_it_waits_for(state: State, rows: Rows) -> None:
    blocker = await rows.blocking(5, event_metadata={"correlation_id": "c-1"})
    (waiting,) = await rows.behind(6)

    shown, first = await state.show(waiting), await state.show(str(blocker))

    assert shown.blocked is not None
    assert (shown.event.status, shown.waits_for) == ("NEW", blocker)
    assert (first.event.status, first.waits_for) == ("DEAD", None)
    assert first.headers == {"correlation_id": "c-1"}
    assert "secret" not in repr(first)


async def test_an_event_in_flight_shows_its_claim(state: State, rows: Rows) -> None:
    event_id = await rows.event(5, "NEW")
    claim_id = await rows.claim(5)

    shown = await state.show(event_id)

    assert (shown.event.status, shown.claim_id, shown.blocked) == ("PUBLISHING", claim_id, None)


async def test_an_unknown_event_is_named(state: State, rows: Rows) -> None:
    with pytest.raises(EventUnknown):
        await state.show(uuid4())


async def test_members_are_shown_with_the_leases_that_hold(state: State, rows: Rows) -> None:
    member = {"member_id": MEMBER, "scope": "all", "service": "shop", "host": "h", "version": "1"}
    await rows.insert(outbox_member, member | {"process_id": 7})
    lease = {"scope": "all", "member_id": MEMBER, "epoch": 2}
    await rows.insert(outbox_lease, lease | {"shard": 0, "expires_at": NOW + HOUR})
    await rows.insert(outbox_lease, lease | {"shard": 1, "expires_at": NOW - HOUR})
    await rows.insert(outbox_lease, {"scope": "all", "shard": 2, "epoch": 1})

    (found,) = await state.members()

    assert (found.member_id, found.process_id, found.shards) == (MEMBER, 7, 1)
    assert [each.holds for each in await state.leases()] == [True, False, False]


async def test_blocked_keys_are_listed_in_bounds(state: State, rows: Rows) -> None:
    for n in range(1, 5):
        await rows.blocking(n, key=f"k{n}", tenant_id=f"t{n % 2}")
    await rows.insert(
        outbox_blocked_key,
        {"tenant_id": "t2", "key": "k", "event_id": uuid4(), "seq": 9, "topic": "orders"},
    )

    first = await state.blocked_keys(limit=2)
    rest = await state.blocked_keys(after=(first[-1].tenant_id, first[-1].key))
    own = await state.blocked_keys("t1")

    assert [each.key for each in (*first, *rest)] == ["k2", "k4", "k1", "k3", "k"]
    assert rest[-1].topic == "orders"
    assert [each.key for each in own] == ["k1", "k3"]


async def test_controls_are_listed(state: State, ops: Ops, rows: Rows) -> None:
    await ops.pause(tenant_id="acme", reason=WHY)
    await ops.limit(5, topic="orders", reason=WHY)

    found = await state.controls()

    assert [(c.tenant_id, c.topic, c.paused, c.events_per_second) for c in found] == [
        ("*", "orders", False, 5),
        ("acme", "*", True, None),
    ]


async def test_a_reader_of_one_tenant_sees_that_tenant_alone(
    database: Database, rows: Rows
) -> None:
    await rows.event(1, "NEW", tenant_id="acme")
    other = await rows.event(2, "NEW", tenant_id="other")
    await rows.blocking(3, tenant_id="other")
    own = State(database.engine, tenant_id="acme")

    overview = await own.overview()

    assert overview.by_tenant == {"acme": 1}
    assert (overview.backlog, overview.dead) == (Counted(1), Counted(0))
    assert await own.events(status="DEAD") == []
    assert [event.seq for event in await own.events(status="NEW")] == [1]
    assert await own.blocked_keys() == []
    with pytest.raises(EventUnknown):
        await own.show(other)
    with pytest.raises(TenantMismatch):
        await own.backlog("other")
