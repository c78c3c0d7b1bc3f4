"""Membership, leases and what waits for its time, whatever the store."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox.database import make_engine
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import ALL
from pillarbox.projector.session.store import SessionStore
from pillarbox.projector.store import Store, StoreUnavailable
from pillarbox.schema.tables import (
    outbox_claim,
    outbox_claim_end,
    outbox_lease,
    outbox_member,
)
from tests.projector_stores.rig import LONG_AGO, Rig, claimed, numbers, shard


async def test_the_first_member_takes_every_shard_and_keeps_it(rig: Rig) -> None:
    member = await rig.join()

    first = await member.store.keep([])
    again = await member.store.keep([])

    assert first.epochs == dict.fromkeys(range(64), 1)
    assert again.epochs == first.epochs


async def test_keeping_renews_the_leases(rig: Rig) -> None:
    member = await rig.owner(lease=15.0)
    soon = datetime.now(UTC) + timedelta(seconds=3)
    await rig.run(update(outbox_lease).values(expires_at=soon))

    await member.keep()

    assert all(row["expires_at"] > soon for row in await rig.all(outbox_lease))


async def test_two_members_share_the_shards(rig: Rig) -> None:
    first = await rig.owner()
    second = await rig.owner()
    assert second.epochs == {}

    ownership = await first.store.keep([])
    await first.store.hand_over(ownership.hand_over)
    await first.keep()
    await second.keep()

    assert len(ownership.hand_over) == 32
    assert len(first.epochs) == len(second.epochs) == 32
    assert first.epochs.keys().isdisjoint(second.epochs)
    assert set(second.epochs.values()) == {2}


async def test_a_lease_that_expired_is_taken_with_the_next_epoch(rig: Rig) -> None:
    first = await rig.owner()
    await rig.expire(first)

    second = await rig.owner()
    await first.keep()

    assert second.epochs == dict.fromkeys(range(64), 2)
    assert first.epochs == {}


async def test_a_lease_that_expired_is_not_renewed(rig: Rig) -> None:
    owner = await rig.owner()
    await rig.expire(owner)

    await owner.keep()

    assert set(owner.epochs.values()) == {2}


async def test_whoever_leaves_gives_everything_back_at_once(rig: Rig) -> None:
    await rig.record(1)
    first = await rig.owner()
    await first.claim()

    await first.store.leave()
    second = await rig.join()
    ownership = await second.store.keep([])

    assert len(ownership.epochs) == 64
    assert not ownership.suspects.seqs
    assert [row["member_id"] for row in await rig.all(outbox_member)] == [second.member_id]


async def test_a_living_owner_that_handed_shards_over_is_not_suspected(rig: Rig) -> None:
    owner, events = await claimed(rig, 1)
    given = sorted(owner.epochs.keys() - {shard("order-1")})
    await owner.store.hand_over(given)

    heir = await rig.join()
    ownership = await heir.store.keep([])

    assert ownership.epochs
    assert not ownership.suspects.seqs
    assert await rig.all(outbox_claim_end) == []
    assert (await owner.settle(sent=events)).lost == frozenset(given)
    assert await rig.states() == {1: "SENT"}


async def test_the_events_of_an_unfinished_claim_are_suspects(rig: Rig) -> None:
    await rig.record(1, 2, 3)
    dead = await rig.owner()
    in_hand = set(numbers(await dead.claim(2)))
    await dead.claim(in_hand=in_hand)
    await rig.expire(dead)
    heir = await rig.join()

    ownership = await heir.store.keep([])
    again = await heir.store.keep([])

    assert ownership.suspects.seqs == {1, 2, 3}
    assert ownership.suspects.largest == 2
    assert again.suspects.seqs == frozenset()
    assert len(await rig.all(outbox_claim_end)) == 2


async def test_the_events_of_a_claim_that_ended_are_no_suspects(rig: Rig) -> None:
    await rig.record(1)
    dead = await rig.owner()
    claim_id = uuid4()
    claimed = await dead.claim_once(claim_id=claim_id)
    await dead.settle(sent=list(claimed.events), ended=[claim_id])
    await rig.expire(dead)
    heir = await rig.join()

    ownership = await heir.store.keep([])

    assert ownership.suspects.seqs == frozenset()


async def test_the_events_of_a_living_owner_are_no_suspects(rig: Rig) -> None:
    await rig.record(1)
    first = await rig.owner()
    await first.claim()
    second = await rig.join()
    ownership = await first.store.keep([])
    await first.store.hand_over(ownership.hand_over)

    taken = await second.store.keep([])

    assert len(taken.epochs) == 32
    assert taken.suspects.seqs == frozenset()


async def test_claims_that_ended_long_ago_are_removed(rig: Rig) -> None:
    await rig.record(1)
    owner = await rig.owner()
    claim_id = uuid4()
    await owner.claim_once(claim_id=claim_id)
    await owner.settle(ended=[claim_id])
    await owner.keep()
    assert len(await rig.all(outbox_claim)) == 1

    past = datetime.now(UTC) - LONG_AGO
    await rig.run(update(outbox_claim_end).values(ended_at=past))
    await owner.keep()

    assert await rig.all(outbox_claim) == await rig.all(outbox_claim_end) == []


async def test_old_claims_of_ours_are_kept_while_they_are_active(rig: Rig) -> None:
    await rig.record(1, 2)
    owner = await rig.owner()
    active, unknown = uuid4(), uuid4()
    await owner.claim_once(1, claim_id=active)
    await owner.claim_once(1, in_hand={1}, claim_id=unknown)
    await rig.run(update(outbox_claim).values(claimed_at=datetime.now(UTC) - LONG_AGO))

    await owner.keep(active)

    assert [row["claim_id"] for row in await rig.all(outbox_claim)] == [active]


async def test_calls_at_the_same_time_do_not_disturb_one_another(rig: Rig) -> None:
    await rig.record(*range(1, 51))
    owner = await rig.owner()
    events = await owner.claim(25)
    shards = sorted(owner.epochs)

    async with asyncio.TaskGroup() as group:
        settling = group.create_task(owner.settle(sent=events))
        claiming = group.create_task(owner.claim(25, in_hand=set(numbers(events))))
        for call in (owner.store.keep([]), owner.store.promote(shards), owner.store.controls()):
            group.create_task(call)

    assert settling.result().lost == frozenset()
    assert numbers(claiming.result())[0] == numbers(events)[-1] + 1


@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_a_call_that_is_cancelled_leaves_the_store_usable(rig: Rig, turns: int) -> None:
    await rig.record(1)
    owner = await rig.owner()
    claiming = asyncio.ensure_future(owner.claim_once())
    for _ in range(turns):
        await asyncio.sleep(0)

    claiming.cancel()
    await asyncio.wait({claiming})

    owner.store.forget(owner.epochs)
    assert numbers(await owner.claim()) == [1]


@pytest.mark.parametrize("kind", ["postgres", "session"])
async def test_a_database_that_does_not_answer_is_said_to_be_unavailable(kind: str) -> None:
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    engine = make_engine(url)
    options = (OutboxProjectorConfig(), ALL, uuid4(), "shop", None, 64)
    names = ("config", "scope", "member_id", "source", "schema", "shards")
    chosen = dict(zip(names, options, strict=True))
    store: Store = (
        PostgresStore(connect_to(url), **chosen)  # type: ignore[arg-type] # a mixed mapping
        if kind == "postgres"
        else SessionStore(async_sessionmaker(engine), **chosen)  # type: ignore[arg-type] # the same
    )

    with pytest.raises(StoreUnavailable):
        await store.controls()

    await store.close()
    await engine.dispose()
