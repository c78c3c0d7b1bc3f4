"""What waits: events for their time, keys for their topic, whatever the store."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select, update

from pillarbox.outbox.release import chunk_for
from pillarbox.projector.store import Control, Failure
from pillarbox.schema.tables import outbox, outbox_blocked_key, outbox_control
from tests.projector_stores.rig import LONG_AGO, Owner, Rig, claimed, numbers, on_postgres, shard


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ten events brought back at a time, chosen among twenty from either end."""
    for store in ("postgres", "session"):
        monkeypatch.setattr(f"pillarbox.projector.{store}.waiting.DUE_AT_ONCE", 10)
        monkeypatch.setattr(f"pillarbox.projector.{store}.waiting.DUE_WINDOW", 20)


async def test_an_event_waits_for_its_time(rig: Rig) -> None:
    deliver_at = datetime.now(UTC) + timedelta(seconds=40)
    await rig.record(1, set_aside="later", deliver_at=deliver_at)
    owner = await rig.owner()

    early = await owner.store.promote(sorted(owner.epochs))
    waiting = await owner.claim()
    await rig.make_due()
    late = await owner.store.promote(sorted(owner.epochs))

    assert (early.events, waiting) == (0, [])
    assert early.next_due is not None
    assert timedelta(seconds=30) < early.next_due <= timedelta(seconds=40)
    assert (late.events, late.next_due) == (1, None)
    assert numbers(await owner.claim()) == [1]


async def test_only_what_is_due_in_our_shards_comes_back(rig: Rig) -> None:
    past = datetime.now(UTC) - LONG_AGO
    await rig.record(1, set_aside="later", deliver_at=past)
    await rig.record(2, key="order-2", status="FAILED", retry_after=past)
    owner = await rig.owner()

    promoted = await owner.store.promote([shard("order-2")])

    assert promoted.events == 1
    assert await rig.states() == {1: "later", 2: "NEW"}


@pytest.mark.usefixtures("few_at_once")
async def test_what_is_due_comes_back_in_parts_and_each_part_tells_of_more(rig: Rig) -> None:
    past = datetime.now(UTC) - LONG_AGO
    await rig.record(*range(1, 16), set_aside="later", deliver_at=past)
    await rig.record(*range(16, 26), status="FAILED", retry_after=past)
    owner = await rig.owner()

    parts = [await owner.store.promote(sorted(owner.epochs)) for _ in range(3)]

    assert [(part.events, part.more) for part in parts] == [(10, True), (10, True), (5, False)]
    assert set((await rig.states()).values()) == {"NEW"}


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("ago", [0, 1, 2], ids=["last", "at the same time", "first"])
async def test_what_is_due_comes_back_of_each_tenant_in_turn(rig: Rig, ago: int) -> None:
    long_ago = datetime.now(UTC) - LONG_AGO
    await rig.record(*range(1, 16), set_aside="later", deliver_at=long_ago)
    own = long_ago + (1 - ago) * timedelta(minutes=1)
    await rig.record(16, 17, tenant_id="acme", set_aside="later", deliver_at=own)
    owner = await rig.owner()

    await owner.store.promote(sorted(owner.epochs))

    states = await rig.states()
    assert [states[16], states[17]] == ["NEW", "NEW"]
    assert list(states.values()).count("NEW") == 10


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("waits", ["later", "FAILED"])
async def test_what_is_due_just_now_is_not_hidden_by_the_many_of_another_tenant(
    rig: Rig, waits: str
) -> None:
    long_ago, now = datetime.now(UTC) - LONG_AGO, datetime.now(UTC) - timedelta(seconds=1)
    for seqs, tenant, at in ((range(1, 61), "default", long_ago), ((61,), "acme", now)):
        waiting = (
            {"set_aside": "later", "deliver_at": at}
            if waits == "later"
            else {"status": "FAILED", "retry_after": at}
        )
        await rig.record(*seqs, tenant_id=tenant, **waiting)
    owner = await rig.owner()

    await owner.store.promote(sorted(owner.epochs))

    assert (await rig.states())[61] == "NEW"


@on_postgres
@pytest.mark.usefixtures("few_at_once")
async def test_what_somebody_holds_for_long_does_not_keep_back_what_is_due_behind_it(
    rig: Rig,
) -> None:
    past = datetime.now(UTC) - LONG_AGO
    await rig.record(*range(1, 11), set_aside="later", deliver_at=past)
    await rig.record(*range(11, 16), set_aside="later", deliver_at=past + timedelta(minutes=1))
    owner = await rig.owner()
    async with rig.database.engine.connect() as other:
        await other.execute(select(outbox.c.id).where(outbox.c.seq <= 10).with_for_update())
        promoted = await owner.store.promote(sorted(owner.epochs))

    states = await rig.states()
    assert promoted.events == 5
    assert {states[seq] for seq in range(11, 16)} == {"NEW"}


async def test_keys_wait_for_a_topic_and_are_let_go(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2)

    settled = await owner.settle(waiting=events[:1], aside=events[1:])

    assert settled.again == ()
    assert await rig.states() == {1: "key", 2: "key"}
    assert await rig.blocked() == {"order-1": 0}
    assert list(await owner.store.waiting_topics()) == ["orders"]
    assert await owner.store.release_topic("orders", 10, {}) == 1
    assert list(await owner.store.waiting_topics()) == []
    again = await owner.claim()
    assert [(event.seq, event.blocked, event.blocker) for event in again] == [
        (1, False, False),
        (2, False, True),
    ]
    await owner.settle(sent=again)
    assert await rig.blocked() == {}


async def test_a_topic_lets_go_of_so_many_keys_and_of_none_of_some_tenants(rig: Rig) -> None:
    for seq in range(1, 4):
        await rig.record(seq, key=f"order-{seq}")
    await rig.record(4, tenant_id="acme")
    owner = await rig.owner()
    await owner.settle(waiting=await owner.claim())

    first = await owner.store.release_topic("orders", 2, {"acme": 0})
    second = await owner.store.release_topic("orders", 10, {"acme": 0})

    assert (first, second) == (2, 1)
    assert await rig.states() == {1: "NEW", 2: "NEW", 3: "NEW", 4: "key"}


async def test_without_order_events_wait_for_their_topic_and_come_back(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2, 3, ordered=False)

    settled = await owner.settle(waiting=events[1:])

    assert settled.again == ()
    assert await rig.states() == {1: "NEW", 2: "key", 3: "key"}
    assert await owner.store.release_topic("orders", 10, {}) == 1
    again = await owner.claim(in_hand={1})
    assert numbers(again) == [2, 3]
    await owner.settle(sent=again)
    assert await rig.blocked() == {}


async def test_a_key_that_goes_on_is_blocked_anew_whatever_blocks_other_keys(rig: Rig) -> None:
    """Through a session the block was not moved while any other key had a FAILED event."""
    await rig.record(1, 2)
    await rig.record(3, key="order-2")
    owner = await rig.owner()
    first, behind, other = sorted(await owner.claim())
    await owner.settle(waiting=[first], aside=[behind])
    await owner.store.release_topic("orders", 10, {})
    await owner.fail(other)
    first, behind = await owner.claim()

    await owner.settle(failed=[(first, Failure("bad", "in this test", 60.0))], aside=[behind])

    assert await rig.blocked() == {"order-1": 1, "order-2": 3}
    assert await rig.states() == {1: "FAILED", 2: "key", 3: "FAILED"}


async def test_keys_that_are_released_together_share_the_rows_of_one_release(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 keys with 1,000 rows each came back in one statement, which outlasted its time limit."""
    monkeypatch.setattr("pillarbox.outbox.release._AT_ONCE", 20)
    for place in range(10):
        await rig.record(*range(place * 10 + 1, place * 10 + 6), key=f"order-{place}")
    owner = await rig.owner()
    await _wait(owner)

    assert await owner.store.release_topic("orders", 10, {}) == 10

    assert list((await rig.states()).values()).count("NEW") == 20
    sent: list[int] = []
    while events := await owner.claim(200):
        sent += numbers(events)
        await owner.settle(sent=events)
    for place in range(10):
        own = [seq for seq in sent if seq // 10 == place]
        assert own == list(range(place * 10 + 1, place * 10 + 6))
    assert await rig.blocked() == {}


def test_the_fewer_keys_are_released_together_the_more_rows_each_has() -> None:
    assert [chunk_for(keys) for keys in (0, 1, 10, 500, 60_000)] == [1_000, 1_000, 1_000, 20, 1]


async def test_of_a_key_that_is_tried_one_event_comes_back_and_then_all_others(rig: Rig) -> None:
    await rig.record(1, 2, 3)
    owner = await rig.owner()
    await _wait(owner)

    await owner.store.release_topic("orders", 1, {}, chunk=1)

    assert await rig.states() == {1: "NEW", 2: "key", 3: "key"}
    await owner.settle(sent=await owner.claim())
    assert await rig.states() == {1: "SENT", 2: "NEW", 3: "NEW"}


async def test_a_tenant_that_is_named_apart_lets_go_of_no_more_than_told(rig: Rig) -> None:
    for tenant in ("acme", "bolt", "cole"):
        for number in range(3):
            seq = "abc".index(tenant[0]) * 10 + number
            await rig.record(seq, key=f"order-{number}", tenant_id=tenant)
    owner = await rig.owner()
    await _wait(owner)

    released = await owner.store.release_topic("orders", 10, {"acme": 1, "bolt": 0})

    assert released == 4
    back = [seq for seq, state in (await rig.states()).items() if state == "NEW"]
    assert [seq // 10 for seq in back] == [0, 2, 2, 2]


async def test_keys_that_wait_for_longest_go_first_also_those_of_a_limited_tenant(rig: Rig) -> None:
    await rig.record(1, key="order-1")
    await rig.record(2, key="order-2", tenant_id="acme")
    owner = await rig.owner()
    await _wait(owner)
    acme = outbox_blocked_key.c.tenant_id == "acme"
    past = datetime.now(UTC) - LONG_AGO
    await rig.run(update(outbox_blocked_key).where(acme).values(blocked_at=past))

    assert await owner.store.release_topic("orders", 1, {"acme": 5}) == 1

    assert await rig.states() == {1: "key", 2: "NEW"}


async def test_no_tenant_goes_before_one_whose_keys_wait_for_longer(rig: Rig) -> None:
    await rig.record(1, 2, key="order-1", tenant_id="acme")
    await rig.record(3, key="order-1", tenant_id="zeta")
    owner = await rig.owner()
    await _wait(owner)
    zeta = outbox_blocked_key.c.tenant_id == "zeta"
    past = datetime.now(UTC) - LONG_AGO
    await rig.run(update(outbox_blocked_key).where(zeta).values(blocked_at=past))

    assert await owner.store.release_topic("orders", 1, {}) == 1

    assert await rig.states() == {1: "key", 2: "key", 3: "NEW"}


async def test_of_a_limited_tenant_too_the_key_that_waits_for_longest_goes_first(rig: Rig) -> None:
    """They went by the alphabet: while more came than the rate allows, the last one never did."""
    await rig.record(1, key="a", tenant_id="acme")
    await rig.record(2, key="z", tenant_id="acme")
    owner = await rig.owner()
    await _wait(owner)
    z = outbox_blocked_key.c.key == "z"
    past = datetime.now(UTC) - LONG_AGO
    await rig.run(update(outbox_blocked_key).where(z).values(blocked_at=past))

    assert await owner.store.release_topic("orders", 10, {"acme": 1}) == 1

    assert await rig.states() == {1: "key", 2: "NEW"}


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "behind those of another tenant"])
async def test_of_a_limited_tenant_with_many_keys_not_all_are_looked_at(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Each look read and sorted all of them: they have no index by time."""
    monkeypatch.setattr("pillarbox.projector.postgres.settling._KEYS_LOOKED_AT", 2)
    for seq, key in enumerate("abcde"):
        await rig.record(seq, key=key, tenant_id="acme")
    for seq in range(10, 10 + others):
        await rig.record(seq, key=f"z{seq}", tenant_id="zeta")
    owner = await rig.owner()
    await _wait(owner)
    past, columns = datetime.now(UTC) - LONG_AGO, outbox_blocked_key.c
    await rig.run(
        update(outbox_blocked_key).where(columns.key == "d").values(blocked_at=past),
        update(outbox_blocked_key)
        .where(columns.tenant_id == "zeta")
        .values(blocked_at=past - LONG_AGO),
    )

    back = list[str]()
    for _ in range(5):
        await owner.store.release_topic("orders", 10, {"acme": 1, "zeta": 0})
        [event] = await owner.claim()
        back.append(event.lane[1])
        await owner.settle(sent=[event])

    assert back[0] == ("a" if others else "d")
    assert sorted(back) == list("abcde")


async def _wait(owner: Owner) -> None:
    """Have every event wait for its topic."""
    while events := await owner.claim():
        first = list({event.lane: event for event in reversed(events)}.values())
        behind = [event for event in events if event not in first]
        await owner.settle(waiting=first, aside=behind)


async def test_what_operators_ask_for_is_told(rig: Rig) -> None:
    owner = await rig.owner()
    for tenant, topic, paused, rate in (
        ("acme", "*", 1, None),
        ("*", "a", 0, 5),
        ("b", "c", 0, None),
    ):
        await rig.run(
            insert(outbox_control).values(
                tenant_id=tenant, topic=topic, paused=paused, events_per_second=rate
            )
        )

    told = await owner.store.controls()

    assert set(told) == {Control("acme", "*", True, None), Control("*", "a", False, 5)}
