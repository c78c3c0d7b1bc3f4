"""The fence: nothing is written without the leases, however late they were lost."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.settling import Settling
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import ALL
from pillarbox.projector.session.transactions import Transactions
from pillarbox.projector.store import Failure, OutboxEvent, Settled, Settlement, StoreUnavailable
from pillarbox.schema.tables import outbox, outbox_blocked_key, outbox_lease
from tests.projector_stores.rig import Owner, Rig, claimed, numbers, on_postgres, shard
from tests.support.waiting import until


class Form(NamedTuple):
    """A form of settling: of how many tenants, which part, and what it makes of the events."""

    part: str
    becomes: str | None
    tenants: int = 1
    on_sent: str = "keep"


FORMS: Final = {
    "settle_sent": Form("sent", "SENT"),
    "settle_sent_many": Form("sent", "SENT", tenants=2),
    "settle_deleted": Form("sent", None, on_sent="delete"),
    "settle_deleted_many": Form("sent", None, tenants=2, on_sent="delete"),
    "failed": Form("failed", "FAILED"),
    "dead": Form("dead", "DEAD"),
    "waiting": Form("waiting", "key"),
    "counted": Form("counted", "NEW"),
}
# The other driver goes the same way through a session.
on_two: Final = pytest.mark.parametrize(
    "rig", ["postgres+psycopg", "session+asyncpg"], indirect=True
)
every_form: Final = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@pytest.mark.parametrize("outcome", ["sent", "failed", "dead", "aside", "waiting", "counted"])
async def test_nothing_is_written_once_the_lease_was_taken_over(rig: Rig, outcome: str) -> None:
    owner, events = await claimed(rig, 1)
    before = await rig.row(1)
    await rig.expire(owner)
    await rig.owner()
    why = Failure("too-large", "1 MB", None if outcome == "dead" else 60.0)
    parts: list[Any] = [(events[0], why)] if outcome in ("failed", "dead") else events

    settled = await owner.settle(**{outcome: parts})

    assert settled.lost == frozenset(owner.epochs)
    assert await rig.row(1) == before
    assert await rig.blocked() == {}


async def test_shards_that_are_still_held_are_written_beside_a_lost_one(rig: Rig) -> None:
    await rig.record(1)
    await rig.record(2, key="order-2")
    owner = await rig.owner()
    events = await owner.claim()
    lost = shard("order-1")
    await rig.run(update(outbox_lease).where(outbox_lease.c.shard == lost).values(epoch=99))

    plain = await owner.settle(sent=events)
    troubled = await owner.settle(failed=[(event, Failure("x", "y", 1.0)) for event in events])

    assert plain.lost == troubled.lost == {lost}
    assert await rig.states() == {1: "NEW", 2: "SENT"}


async def test_a_lease_that_was_given_back_is_lost(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)
    await owner.store.hand_over([shard("order-1")])

    settled = await owner.settle(sent=events)

    assert settled.lost == {shard("order-1")}
    assert await rig.states() == {1: "NEW"}


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
async def test_an_owner_that_freezes_while_it_settles_does_not_keep_its_shards(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.record(1)
    owner = await rig.owner(lease=1.0)
    events = await owner.claim()
    thawed = asyncio.Event()

    async def freeze(*_: object) -> None:
        await thawed.wait()

    monkeypatch.setattr(Settling, "_settle_troubled", freeze)
    frozen = asyncio.ensure_future(owner.fail(events[0]))
    heir = await rig.join(lease=1.0)

    async def takes_over() -> bool:
        await heir.keep()
        return shard("order-1") in heir.epochs

    await until(takes_over, "the server ends the frozen session", 20)
    thawed.set()

    with pytest.raises(StoreUnavailable):
        await frozen
    assert await rig.states() == {1: "NEW"}


@on_two
@every_form
async def test_a_takeover_that_commits_before_settling_has_its_lease_changes_no_row(
    rig: Rig, form: Form
) -> None:
    owner, events = await claimed_as(rig, form)
    before = await rig.all(outbox)
    engine = rig.database.engine
    async with engine.connect() as takeover, engine.connect() as other:
        await other.execute(select(outbox).with_for_update())
        await takeover.execute(select(outbox_lease).with_for_update())
        await takeover.execute(update(outbox_lease).values(member_id=uuid4(), epoch=2))
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(settle(owner, form, events))
            await until(lambda: someone_waits(rig), "settling waits for the lease")
            await takeover.commit()
            # It does not even wait for the rows, which stay locked.
            settled = await settling

    assert settled.lost == shards_of(events)
    assert await rig.all(outbox) == before
    assert await rig.blocked() == {}


@on_two
@every_form
async def test_no_shard_is_taken_over_while_settling_waits_for_a_row(rig: Rig, form: Form) -> None:
    owner, events = await claimed_as(rig, form)
    heir = await rig.join()
    async with rig.database.engine.connect() as other:
        await other.execute(select(outbox).with_for_update())
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(settle(owner, form, events))
            await until(lambda: someone_waits(rig), "settling waits for the row")
            await rig.expire(owner)
            await heir.keep()
            taken = heir.epochs.keys()
            # The row changes under it: what it waited for is judged anew.
            await other.execute(update(outbox).values(routing_key="changed"))
            await other.commit()
    await heir.keep()

    assert taken == set(range(64)) - shards_of(events)
    assert settling.result().lost == frozenset()
    becomes = {event.seq: form.becomes for event in events if form.becomes is not None}
    assert await rig.states() == becomes
    assert heir.epochs.keys() == set(range(64))


@on_postgres
async def test_a_release_that_commits_while_settling_waits_is_seen(rig: Rig) -> None:
    owner, events = await claimed(rig, 1, 2)
    await owner.fail(events[0])
    async with rig.database.engine.connect() as release:
        await release.execute(select(outbox_blocked_key).with_for_update())
        await release.execute(outbox_blocked_key.delete())
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(owner.settle(aside=events[1:]))
            await until(lambda: someone_waits(rig), "settling waits for the blocked key")
            await release.commit()

    assert numbers(settling.result().again) == [2]
    assert await rig.states() == {1: "FAILED", 2: "NEW"}


@on_postgres
async def test_a_takeover_passes_over_a_lease_that_is_being_settled(rig: Rig) -> None:
    owner, _ = await claimed(rig, 1)
    await rig.expire(owner)
    async with rig.database.engine.connect() as settling:
        held = select(outbox_lease).where(outbox_lease.c.shard == 7)
        await settling.execute(held.with_for_update(read=True, key_share=True))

        heir = await rig.owner()

    assert heir.epochs.keys() == set(range(64)) - {7}


@on_postgres
@pytest.mark.parametrize("what", ["set aside", "release"])
async def test_whoever_waits_for_blocked_keys_holds_none_behind_the_one_it_waits_for(
    rig: Rig, what: str
) -> None:
    """An operator's release, which locks them by key, waited for a settlement that waited for it."""
    keys = [f"order-{number}" for number in range(8)]
    for number, key in enumerate(keys):
        await rig.record(number, key=key)
        await rig.record(number + 10, key=key)
    owner = await rig.owner()
    events = list[OutboxEvent]()
    while new := await owner.claim(in_hand={event.seq for event in events}):
        events += new
    events.sort(key=lambda event: event.seq)
    await owner.settle(dead=[(event, Failure("x", "y", None)) for event in events[:8]])
    heads = [event._replace(blocker=True) for event in reversed(events[:8])]
    parts: Any = {"aside": events[:7:-1]} if what == "set aside" else {"sent": heads}
    async with rig.database.engine.connect() as operator:
        first = select(outbox_blocked_key).where(outbox_blocked_key.c.key == keys[0])
        await operator.execute(first.with_for_update())
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(owner.settle(**parts))
            await until(lambda: someone_waits(rig), "settling waits for the first key")
            others = select(outbox_blocked_key.c.key).where(outbox_blocked_key.c.key != keys[0])
            free = await operator.scalars(others.with_for_update(skip_locked=True))
            assert sorted(free) == keys[1:]
            await operator.commit()

    assert settling.result().lost == frozenset()


async def someone_waits(rig: Rig) -> bool:
    async with rig.database.engine.connect() as connection:
        waiting = await connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            )
        )
        return bool(waiting)


async def claimed_as(rig: Rig, form: Form) -> tuple[Owner, list[OutboxEvent]]:
    """Record an event for each tenant of the form, and claim them."""
    for number in range(1, form.tenants + 1):
        await rig.record(number, tenant_id=f"tenant-{number}")
    owner = await rig.owner(on_sent=form.on_sent)
    return owner, await owner.claim()


async def settle(owner: Owner, form: Form, events: Sequence[OutboxEvent]) -> Settled:
    """Settle under the leases of these events alone, as the loop does."""
    why = Failure("too-large", "1 MB", None if form.part == "dead" else 60.0)
    parts: Any = [(event, why) for event in events] if form.part in ("failed", "dead") else events
    epochs = {place: owner.epochs[place] for place in shards_of(events)}
    return await owner.store.settle(Settlement(**{form.part: list(parts)}), epochs)


def shards_of(events: Sequence[OutboxEvent]) -> frozenset[int]:
    return frozenset(event.shard for event in events)


@pytest.mark.parametrize("rig", ["postgres+psycopg"], indirect=True)
@pytest.mark.parametrize("name", ["take", "hand_over", "lock_topic"])
async def test_whoever_freezes_with_locks_of_a_transaction_is_ended_by_the_server(
    rig: Rig, name: str
) -> None:
    """Keys of a topic that came back stayed locked, and no settlement with one of them ended."""
    owner, events = await claimed(rig, 1)
    await owner.settle(waiting=events)
    if name == "take":
        await rig.run(update(outbox_lease).values(member_id=None))
    parameters = {"member": owner.member_id, "scope": "all", "shards": None, "take": 1}
    topic = {"topic": "orders", "keys": 1, "apart": [], "rooms": [], "window": 1}
    statement = Statements(schema=None, shards=64, scope=ALL, by_row=False)[name]
    frozen = await connect_to(rig.database.url)()
    await frozen.execute("BEGIN")
    held = await frozen.execute(statement, parameters | topic | {"lease": 15.0, "idle": "100"})
    assert await held.fetchall()

    async def is_ended() -> bool:
        running = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
        async with rig.database.engine.connect() as other:
            found = await other.execute(running, {"pid": frozen.info.backend_pid})
            return bool(found.scalar_one() == 0)

    await until(is_ended, "the server ends the frozen session", 20)
    await frozen.close()


@pytest.mark.parametrize("rig", ["session+asyncpg", "session+psycopg"], indirect=True)
async def test_a_transaction_through_a_session_may_not_rest_for_longer_than_the_lease(
    rig: Rig,
) -> None:
    engine = rig.database.engine
    asked = text("SHOW idle_in_transaction_session_timeout")
    own = Transactions(async_sessionmaker(engine), outbox_lease, 15.0)

    limit = await own.write(lambda connection: connection.execute(asked).scalar_one())
    async with engine.connect() as connection:
        bound = Transactions(async_sessionmaker(connection), outbox_lease, 15.0)
        of_a_test = await bound.write(lambda inner: inner.execute(asked).scalar_one())

    assert (limit, of_a_test) == ("15s", "0")
