"""What a claim reads, whatever the store."""

import random
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import insert, update

from pillarbox.projector.scope import Scope, bucket_of
from pillarbox.schema.tables import outbox, outbox_blocked_key, outbox_claim
from tests.projector_stores.rig import Rig, numbers, on_postgres, record_rows, shard
from tests.schema.rows import new_id


def incompressible(size: int) -> str:
    return random.Random(1).randbytes(size // 2).hex()


async def test_events_of_a_key_come_in_the_order_of_their_numbers(rig: Rig) -> None:
    await rig.record(3, 1, 2)
    await rig.record(5, 4, key="order-2")
    owner = await rig.owner()

    events = await owner.claim()

    assert sorted(numbers(events)) == [1, 2, 3, 4, 5]
    for lane in {event.lane for event in events}:
        mine = [event.seq for event in events if event.lane == lane]
        assert mine == sorted(mine)


async def test_only_what_nothing_holds_back_is_read(rig: Rig) -> None:
    await rig.record(1)
    for seq, status in enumerate(("SENT", "FAILED", "DEAD"), start=2):
        await rig.record(seq, status=status)
    await rig.record(5, set_aside="key")
    await rig.record(6, set_aside="later")
    owner = await rig.owner()

    assert numbers(await owner.claim()) == [1]


async def test_an_event_carries_everything_that_was_stored(rig: Rig) -> None:
    event_id, occurred_at = new_id(), datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    stored = {
        "aggregate_type": "order",
        "aggregate_id": "1",
        "aggregate_version": 7,
        "event_number": 2,
        "routing_key": "eu",
        "schema_id": "order.v2",
        "schema_version": 2,
    }
    await rig.record(
        1,
        id=event_id,
        occurred_at=occurred_at,
        payload={"total": 0.0, "name": "Zoë"},
        event_metadata={"trace": "abc"},
        retry_count=3,
        **stored,
    )
    owner = await rig.owner()

    (event,) = await owner.claim()

    assert event.shard == shard("order-1")
    assert event.lane == ("default", "order-1")
    assert (event.topic, event.attempts) == ("orders", 3)
    assert 0 <= event.age < 60
    envelope = event.envelope
    assert (envelope.event_id, envelope.occurred_at) == (str(event_id), occurred_at)
    assert (envelope.event_type, envelope.source) == ("OrderPlaced", "shop")
    assert envelope.data is not None
    assert b'"total": 0.0' in envelope.data
    assert envelope.headers == {"trace": "abc"}
    assert {name: getattr(envelope, name) for name in stored} == stored


async def test_bytes_and_tombstones_come_as_they_are(rig: Rig) -> None:
    await rig.record(1, payload=None, payload_bytes=b"\x00\xff", content_type="avro/binary")
    await rig.record(2, payload=None)
    owner = await rig.owner()

    binary, tombstone = await owner.claim()

    assert (binary.envelope.data, binary.envelope.content_type) == (b"\x00\xff", "avro/binary")
    assert tombstone.envelope.data is None


async def test_an_event_that_is_its_own_key_has_no_key_on_the_wire(rig: Rig) -> None:
    event_id = new_id()
    await rig.record(1, id=event_id, key=str(event_id))
    owner = await rig.owner()

    (event,) = await owner.claim()

    assert event.unordered
    assert event.envelope.key is None


async def test_what_is_in_hand_is_not_read_again(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    in_hand = set(numbers(await owner.claim()))
    await rig.record(3)

    assert numbers(await owner.claim(in_hand=in_hand)) == [3]
    assert await owner.claim(in_hand=in_hand | {3}) == []


async def test_what_is_not_in_hand_any_more_is_read_again(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    events = await owner.claim()

    owner.store.read_again(events[1:])

    assert numbers(await owner.claim(in_hand={1})) == [2]


async def test_a_shard_that_was_forgotten_is_read_from_its_beginning(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    await owner.claim()

    owner.store.forget([shard("order-1")])

    assert numbers(await owner.claim()) == [1, 2]


async def test_a_claim_takes_no_more_rows_than_asked_for(rig: Rig) -> None:
    await rig.record(*range(1, 11))
    owner = await rig.owner()

    first = await owner.claim_once(4)
    rest = await owner.claim(100, in_hand=set(numbers(first.events)))

    # Beside a backlog this store keeps room for one that is new.
    assert len(first.events) == (3 if rig.kind.startswith("postgres") else 4)
    assert first.more
    assert numbers(first.events) + numbers(rest) == list(range(1, 11))


async def test_a_claim_takes_no_more_bytes_than_configured(rig: Rig) -> None:
    await rig.record(*range(1, 9), payload={"text": incompressible(600)})
    owner = await rig.owner(batch_bytes=2_000)
    in_hand: set[int] = set()
    sizes = []

    while events := await owner.claim(in_hand=in_hand):
        sizes.append(len(events))
        in_hand |= set(numbers(events))

    assert in_hand == set(range(1, 9))
    assert max(sizes) <= 4


async def test_an_event_that_is_larger_than_a_batch_is_claimed_all_the_same(rig: Rig) -> None:
    await rig.record(1, 2, payload={"text": incompressible(5_000)})
    owner = await rig.owner(batch_bytes=1_024)

    assert numbers(await owner.claim()) == [1]
    assert numbers(await owner.claim(in_hand={1})) == [2]


async def test_a_claim_is_recorded_with_its_leases_and_events(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    claim_id = uuid4()

    await owner.claim_once(claim_id=claim_id)

    (claim,) = await rig.all(outbox_claim)
    assert (claim["claim_id"], claim["member_id"]) == (claim_id, owner.member_id)
    assert sorted(claim["seqs"]) == [1, 2]
    assert dict(zip(claim["shards"], claim["epochs"], strict=True)) == owner.epochs


async def test_a_claim_that_finds_nothing_records_nothing(rig: Rig) -> None:
    owner = await rig.owner()

    claimed = await owner.claim_once()

    assert (list(claimed.events), claimed.more, claimed.held) == ([], False, True)
    assert await rig.all(outbox_claim) == []


async def test_nothing_is_claimed_under_a_lost_lease(rig: Rig) -> None:
    await rig.record(1)
    owner = await rig.owner()
    await rig.expire(owner)
    await rig.owner()

    claimed = await owner.claim_once()

    assert (list(claimed.events), claimed.held) == ([], False)
    assert await rig.all(outbox_claim) == []


async def test_only_the_shards_of_the_claim_are_read(rig: Rig) -> None:
    await rig.record(1)
    await rig.record(2, key="order-2")
    assert shard("order-1") != shard("order-2")
    owner = await rig.owner()

    owner.epochs = {shard("order-2"): owner.epochs[shard("order-2")]}

    assert numbers(await owner.claim()) == [2]


@on_postgres
async def test_a_transaction_that_commits_late_is_found(rig: Rig) -> None:
    owner = await rig.owner()
    async with rig.database.engine.connect() as late:
        await late.run_sync(record_rows, [1], {"key": "order-2"})
        await rig.record(2)
        first = numbers(await owner.claim())
        await rig.record(3)
        second = numbers(await owner.claim(in_hand={2}))
        await late.commit()

    third = numbers(await owner.claim(in_hand={2, 3}))

    assert (first, second, third) == ([2], [3], [1])


async def test_tenants_that_are_passed_over_wait_and_come_later(rig: Rig) -> None:
    await rig.record(1, 2, tenant_id="acme")
    await rig.record(3, tenant_id="brown")
    owner = await rig.owner()

    first = await owner.claim(passed_over={"acme"})
    in_hand = set(numbers(first))
    still = await owner.claim(in_hand=in_hand, passed_over={"acme"})
    later = await owner.claim(in_hand=in_hand)

    assert (numbers(first), still, numbers(later)) == ([3], [], [1, 2])


async def test_a_tenant_with_one_event_does_not_wait_behind_a_backlog(rig: Rig) -> None:
    await rig.record(*range(1, 301), tenant_id="acme")
    for seq in range(301, 401):
        await rig.record(seq, tenant_id="acme", key=f"order-{seq}")
    await rig.record(401, tenant_id="brown")
    owner = await rig.owner()

    first = await owner.claim(64)

    assert 401 in numbers(first)


async def test_a_round_of_claims_reaches_every_event(rig: Rig) -> None:
    for seq in range(1, 201):
        await rig.record(seq, tenant_id=f"tenant-{seq % 7}", key=f"order-{seq % 40}")
    owner = await rig.owner()
    in_hand: set[int] = set()

    while events := await owner.claim(20, in_hand=in_hand):
        assert len(events) <= 20
        assert in_hand.isdisjoint(numbers(events))
        in_hand |= set(numbers(events))

    assert in_hand == set(range(1, 201))


async def test_a_scope_reads_its_tenants_only(rig: Rig) -> None:
    await rig.record(1, tenant_id="acme")
    await rig.record(2, tenant_id="brown")
    await rig.record(3, tenant_id="clark")
    owner = await rig.owner(Scope(tenants=("acme", "clark")))

    first = numbers(await owner.claim())
    await rig.record(4, tenant_id="brown")
    await rig.record(5, tenant_id="clark")
    second = numbers(await owner.claim(in_hand={1, 3}))

    assert (sorted(first), second) == ([1, 3], [5])


async def test_two_buckets_read_every_tenant_once(rig: Rig) -> None:
    for seq in range(1, 11):
        await rig.record(seq, tenant_id=f"tenant-{seq}")
    even = await rig.owner(Scope(bucket=0, buckets=2))
    odd = await rig.owner(Scope(bucket=1, buckets=2))

    read = numbers(await even.claim(1_000)), numbers(await odd.claim(1_000))

    bucket = {seq: bucket_of(f"tenant-{seq}", 2) for seq in range(1, 11)}
    parts = [seq for seq in bucket if not bucket[seq]], [seq for seq in bucket if bucket[seq]]
    assert tuple(map(sorted, read)) == parts


async def test_events_of_a_blocked_key_are_flagged(rig: Rig) -> None:
    blocker = new_id()
    await rig.record(1)
    await rig.record(2, id=blocker)
    await rig.record(3)
    await rig.record(4, key="order-2")
    place = {"tenant_id": "default", "key": "order-1"}
    await rig.run(insert(outbox_blocked_key).values(**place, event_id=blocker, seq=2))
    owner = await rig.owner()

    events = await owner.claim()

    flags = [(event.seq, event.blocked, event.blocker) for event in events]
    assert sorted(flags) == [
        (1, False, False),
        (2, False, True),
        (3, True, False),
        (4, False, False),
    ]


async def test_without_order_no_key_blocks(rig: Rig) -> None:
    await rig.record(1, 2)
    place = {"tenant_id": "default", "key": "order-1"}
    await rig.run(insert(outbox_blocked_key).values(**place, event_id=new_id(), seq=0))
    owner = await rig.owner(ordered=False)

    events = await owner.claim()

    assert [event.blocked for event in events] == [False, False]
    assert len({event.lane for event in events}) == 2
    assert {event.envelope.key for event in events} == {"order-1"}


async def test_an_event_is_flagged_once_it_has_expired(rig: Rig) -> None:
    now = datetime.now(UTC)
    await rig.record(1, expires_at=now - timedelta(seconds=1))
    await rig.record(2, expires_at=now + timedelta(minutes=1))
    await rig.record(3)
    owner = await rig.owner()

    events = await owner.claim()

    assert [event.expires_in is not None and event.expires_in <= 0 for event in events] == [
        True,
        False,
        False,
    ]


async def test_a_claim_by_row_marks_its_rows(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner(claim="row")

    await owner.claim(1)

    assert await rig.states() == {1: "PUBLISHING", 2: "NEW"}


async def test_what_a_dead_owner_left_marked_is_claimed_by_the_next(rig: Rig) -> None:
    await rig.record(1, 2)
    dead = await rig.owner(claim="row")
    await dead.claim()
    await rig.expire(dead)
    heir = await rig.owner(claim="row")

    events = await heir.claim()

    assert numbers(events) == [1, 2]


@pytest.mark.parametrize("change", [{"status": "SENT"}, {"set_aside": "key"}])
async def test_a_row_that_changed_since_the_last_claim_is_left_alone(
    rig: Rig, change: dict[str, str]
) -> None:
    await rig.record(1, 2, 3)
    owner = await rig.owner()
    in_hand = set(numbers(await owner.claim(1)))

    await rig.run(update(outbox).where(outbox.c.seq == 2).values(**change))

    assert numbers(await owner.claim(in_hand=in_hand)) == [3]
