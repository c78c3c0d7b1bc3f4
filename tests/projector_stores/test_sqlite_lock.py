"""On SQLite the write lock is the fence: it is taken before the leases are looked at."""

import asyncio
import sqlite3
from contextlib import closing
from uuid import uuid4

import pytest
from sqlalchemy import update

from pillarbox.projector.store import StoreUnavailable
from pillarbox.schema.tables import outbox_lease
from tests.projector_stores.rig import Owner, Rig

on_sqlite = pytest.mark.parametrize("rig", ["session+sqlite"], indirect=True)


async def impatient(rig: Rig) -> Owner:
    """Join with connections that do not wait for the lock, so that a test need not either."""
    engine = await rig.stack.enter_async_context(
        rig.database.other_engine(connect_args={"timeout": 0})
    )
    rig.database.sessions.configure(bind=engine)
    return await rig.owner()


@on_sqlite
async def test_settling_does_not_look_at_leases_that_are_being_taken(rig: Rig) -> None:
    await rig.record(1)
    owner = await impatient(rig)
    events = await owner.claim()
    async with rig.database.engine.connect() as takeover:
        await takeover.execute(update(outbox_lease).values(member_id=uuid4(), epoch=2))

        with pytest.raises(StoreUnavailable, match="locked"):
            await owner.settle(sent=events)

        await takeover.commit()
    settled = await owner.settle(sent=events)

    assert settled.lost == frozenset(owner.epochs)
    assert await rig.states() == {1: "NEW"}


@on_sqlite
async def test_a_claim_does_not_read_while_leases_are_being_taken(rig: Rig) -> None:
    await rig.record(1)
    owner = await impatient(rig)
    async with rig.database.engine.connect() as takeover:
        await takeover.execute(update(outbox_lease).values(member_id=uuid4(), epoch=2))

        with pytest.raises(StoreUnavailable, match="locked"):
            await owner.claim_once()

        await takeover.commit()
    claimed = await owner.claim_once()

    assert not claimed.held


@on_sqlite
async def test_what_only_reads_does_not_wait_for_the_lock(rig: Rig) -> None:
    owner = await impatient(rig)
    async with rig.database.engine.connect() as writer:
        await writer.execute(update(outbox_lease).values(epoch=2))

        assert list(await owner.store.controls()) == []
        assert list(await owner.store.waiting_topics()) == []


@on_sqlite
async def test_members_wait_for_one_another_and_do_not_fail(rig: Rig) -> None:
    with closing(sqlite3.connect(str(rig.database.url.database))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    await rig.record(1)
    members = [await rig.owner(), await rig.owner()]

    async def work(member: Owner) -> None:
        for _ in range(20):
            await member.claim_once()  # reads first, and then writes
            await member.keep()

    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(work(member))

    assert len(members[0].epochs) == 64
