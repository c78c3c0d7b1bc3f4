"""What a settlement writes, whatever the store."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import insert, update

from pillarbox.outbox.release import CHUNK, EXPIRED
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.line import Connection
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.store import Failure
from pillarbox.schema.tables import outbox, outbox_blocked_key, outbox_claim_end
from tests.projector_stores.rig import Rig, claimed, numbers
from tests.schema.rows import new_id


async def test_delivered_events_are_sent_and_their_claim_ends(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2)
    claim_id = uuid4()

    settled = await owner.settle(sent=events[:1], ended=[claim_id])

    assert (settled.lost, settled.again) == (frozenset(), ())
    assert await rig.states() == {1: "SENT", 2: "NEW"}
    published_at = (await rig.row(1))["published_at"]
    assert datetime.now(UTC) - timedelta(minutes=1) < published_at
    assert [row["claim_id"] for row in await rig.all(outbox_claim_end)] == [claim_id]


async def test_settling_twice_is_harmless(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)
    claim_id = uuid4()

    for _ in range(2):
        await owner.settle(sent=events, ended=[claim_id])

    assert await rig.states() == {1: "SENT"}


async def test_claims_may_end_without_any_event(rig: Rig) -> None:
    owner = await rig.owner()
    owner.epochs = {}

    await owner.settle(ended=[uuid4(), uuid4()])

    assert len(await rig.all(outbox_claim_end)) == 2


async def test_delivered_events_are_removed_on_request(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2, on_sent="delete")

    await owner.settle(sent=events[:1])

    assert await rig.states() == {2: "NEW"}


async def test_a_failed_event_blocks_its_key_and_says_why(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)

    await owner.fail(events[0])

    row = await rig.row(1)
    assert (row["status"], row["retry_count"]) == ("FAILED", 1)
    assert (row["error_class"], row["error_message"]) == ("too-large", "1 MB")
    assert timedelta(seconds=30) < row["retry_after"] - datetime.now(UTC) <= timedelta(seconds=60)
    assert await rig.blocked() == {"order-1": 1}


async def test_a_failed_event_comes_back_when_it_is_due_and_frees_its_key_when_sent(
    rig: Rig,
) -> None:
    owner, events = await claimed(rig, 1, 2)
    await owner.settle(failed=[(events[0], Failure("too-large", "", 60.0))], aside=events[1:])
    await rig.record(3)
    later = await owner.claim()
    await owner.settle(aside=later)
    assert await rig.states() == {1: "FAILED", 2: "key", 3: "key"}

    await rig.make_due()
    promoted = await owner.store.promote(sorted(owner.epochs))
    (retried,) = await owner.claim()
    await owner.settle(sent=[retried])

    assert promoted.events == 1
    assert (retried.seq, retried.attempts, retried.blocker, retried.blocked) == (1, 1, True, False)
    followers = await owner.claim()
    assert numbers(followers) == [2, 3]
    await owner.settle(sent=followers)
    assert set((await rig.states()).values()) == {"SENT"}
    assert await rig.blocked() == {}


async def test_only_the_expected_attempt_is_written(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)
    await rig.run(update(outbox).values(retry_count=4))

    await owner.fail(events[0])

    assert await rig.states() == {1: "NEW"}
    assert await rig.blocked() == {}


async def test_only_the_expected_status_is_written(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)
    await rig.run(update(outbox).values(status="DEAD", error_class="skipped"))

    await owner.settle(sent=events)
    await owner.fail(events[0])

    row = await rig.row(1)
    assert (row["status"], row["error_class"]) == ("DEAD", "skipped")
    assert await rig.blocked() == {}


async def test_a_dead_event_blocks_its_key(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)

    await owner.fail(events[0], delay=None)
    await rig.record(2)
    (behind,) = await owner.claim()

    assert (await rig.row(1))["retry_after"] is None
    assert (behind.seq, behind.blocked) == (2, True)


async def test_a_dead_event_is_passed_on_request(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, on_dead="skip")

    await owner.fail(events[0], delay=None)

    assert await rig.states() == {1: "DEAD"}
    assert await rig.blocked() == {}


async def test_a_dead_event_that_is_passed_says_that_it_was_decided_about(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, on_dead="skip")

    await owner.fail(events[0], delay=None)

    row = await rig.row(1)
    assert (row["error_class"], row["error_message"]) == ("skipped", "too-large: 1 MB")


async def test_an_older_event_that_fails_again_does_not_hide_the_one_that_blocks(rig: Rig) -> None:
    owner, (retried, blocking) = await claimed(rig, 2, 5)
    await owner.fail(blocking, delay=None)

    await owner.fail(retried)

    assert await rig.states() == {2: "FAILED", 5: "DEAD"}
    assert await rig.blocked() == {"order-1": 5}


@pytest.mark.parametrize("delay", [60.0, None], ids=["failed", "dead"])
async def test_of_two_events_of_a_key_that_are_refused_together_the_later_one_blocks_it(
    rig: Rig, delay: float | None
) -> None:
    owner, (older, blocking) = await claimed(rig, 2, 5)
    first = (blocking, Failure("too-large", "1 MB", delay))
    second = (older, Failure("too-large", "1 MB", 60.0))

    if delay is None:
        await owner.settle(dead=[first], failed=[second])
    else:
        await owner.settle(failed=[first, second])

    assert await rig.states() == {2: "FAILED", 5: "DEAD" if delay is None else "FAILED"}
    assert await rig.blocked() == {"order-1": 5}


async def test_a_dead_event_that_blocked_its_key_frees_it_when_it_is_passed(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2, on_dead="skip")
    await owner.settle(failed=[(events[0], Failure("too-large", "", 60.0))], aside=events[1:])
    await rig.make_due()
    await owner.store.promote(sorted(owner.epochs))
    (retried,) = await owner.claim()

    await owner.fail(retried, delay=None)

    assert await rig.states() == {1: "DEAD", 2: "NEW"}
    assert numbers(await owner.claim()) == [2]


async def test_an_expired_event_blocks_no_key_and_counts_no_attempt(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)

    await owner.settle(dead=[(events[0], Failure(EXPIRED, "expires_at has passed"))])

    row = await rig.row(1)
    assert (row["status"], row["retry_count"], row["error_class"]) == ("DEAD", 0, EXPIRED)
    assert await rig.blocked() == {}


async def test_an_event_without_an_order_blocks_nobody(rig: Rig) -> None:
    event_id = new_id()
    await rig.record(1, id=event_id, key=str(event_id))
    owner = await rig.owner()

    await owner.fail((await owner.claim())[0])

    assert await rig.states() == {1: "FAILED"}
    assert await rig.blocked() == {}


async def test_events_whose_key_is_free_by_now_are_read_again(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2)
    await owner.fail(events[0])
    await rig.run(outbox_blocked_key.delete())

    settled = await owner.settle(aside=events[1:])
    owner.store.read_again(settled.again)

    assert numbers(settled.again) == [2]
    assert numbers(await owner.claim()) == [2]


async def test_events_before_the_one_that_blocks_are_not_set_aside(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2, 3)
    place = {"tenant_id": "default", "key": "order-1"}
    await rig.run(insert(outbox_blocked_key).values(**place, event_id=new_id(), seq=2))

    settled = await owner.settle(aside=events)

    assert numbers(settled.again) == [1, 2]
    assert await rig.states() == {1: "NEW", 2: "NEW", 3: "key"}


async def test_a_long_row_behind_a_key_comes_back_in_chunks_in_order(rig: Rig) -> None:
    owner, (first,) = await claimed(rig, 1)
    await owner.fail(first)
    await rig.record(*range(2, CHUNK + 12), set_aside="key")
    await rig.make_due()
    await owner.store.promote(sorted(owner.epochs))
    (retried,) = await owner.claim()

    await owner.settle(sent=[retried])
    await rig.record(CHUNK + 12)
    chunk = await owner.claim(CHUNK * 2)

    *passing, newest = chunk
    assert numbers(passing) == list(range(2, CHUNK + 2))
    assert (newest.seq, newest.blocked) == (CHUNK + 12, True)
    assert [event.seq for event in passing if event.blocker] == [CHUNK + 1]
    await owner.settle(sent=passing, aside=[newest])
    rest = await owner.claim(CHUNK * 2)
    assert numbers(rest) == list(range(CHUNK + 2, CHUNK + 13))
    await owner.settle(sent=rest)
    assert await rig.blocked() == {}
    assert set((await rig.states()).values()) == {"SENT"}


async def test_an_attempt_is_counted_for_an_event_that_was_alone(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)

    await owner.settle(counted=events)
    await owner.settle(counted=events)  # the same attempt again

    assert (await rig.row(1))["retry_count"] == 1
    assert await rig.states() == {1: "NEW"}


async def test_rows_that_a_claim_marked_are_settled(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2, 3, claim="row")

    await owner.settle(failed=[(events[1], Failure("x", "y", 1.0))], aside=events[2:])
    await owner.settle(sent=events[:1])

    assert await rig.states() == {1: "SENT", 2: "FAILED", 3: "key"}
    assert (await rig.row(3))["status"] == "NEW"


async def test_rows_that_a_claim_marked_and_nothing_blocks_are_new_again(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, claim="row")

    settled = await owner.settle(aside=events)

    assert numbers(settled.again) == [1]
    assert await rig.states() == {1: "NEW"}


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_what_is_found_by_ids_is_planned_for_the_table_as_it_is(rig: Rig) -> None:
    """Planned for an almost empty table, it read all of a backlog for each event, and timed out."""
    connections = []

    async def connect() -> Connection:
        connections.append(await connect_to(rig.database.url)())
        return connections[-1]

    await rig.record(1, 2, 3)
    await rig.record(4, 5, key="order-2")
    owner = await rig.owner(claim="row")
    assert isinstance(owner.store, PostgresStore)
    owner.store._settling._connect = connect

    events = await owner.claim()
    await rig.record(*range(100, 140), tenant_id="acme")
    await rig.record(*range(200, 240), tenant_id="bolt")
    await owner.settle(sent=await owner.claim(in_hand=set(numbers(events))))
    await owner.settle(counted=events[:1])
    await owner.fail(events[0]._replace(attempts=1))
    await owner.settle(waiting=events[3:4], aside=[*events[1:3], events[4]])
    await owner.store.promote(sorted(owner.epochs))
    await owner.store.release_topic("orders", 10, {})

    [connection] = connections
    found = await connection.execute("SELECT statement FROM pg_prepared_statements", prepare=False)
    assert [text for (text,) in await found.fetchall() if " outbox AS " in text] == []
