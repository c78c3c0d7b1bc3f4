"""The fence: nothing is written without the leases, however late they were lost."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, text, update

from pillarbox.projector.postgres.settling import Settling
from pillarbox.projector.store import Failure, Settlement, StoreUnavailable
from pillarbox.schema.tables import outbox_blocked_key, outbox_lease
from tests.projector_stores.rig import Rig, claimed, numbers, on_postgres, shard
from tests.support.waiting import until


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


@on_postgres
@pytest.mark.parametrize("troubled", [False, True])
async def test_a_takeover_that_commits_while_settling_waits_is_seen(
    rig: Rig, troubled: bool
) -> None:
    owner, events = await claimed(rig, 1)
    parts = Settlement(failed=[(events[0], Failure("x", "y", 1.0))]) if troubled else None
    async with rig.database.engine.connect() as takeover:
        await takeover.execute(select(outbox_lease).with_for_update())
        await takeover.execute(update(outbox_lease).values(member_id=uuid4(), epoch=2))
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(
                owner.store.settle(parts or Settlement(sent=events), owner.epochs)
            )
            await until(lambda: someone_waits(rig), "settling waits for the lease")
            await takeover.commit()

    assert settling.result().lost == frozenset(owner.epochs)
    assert await rig.states() == {1: "NEW"}


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


async def someone_waits(rig: Rig) -> bool:
    async with rig.database.engine.connect() as connection:
        waiting = await connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            )
        )
        return bool(waiting)
