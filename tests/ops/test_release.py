"""A key that is released goes on in order, a chunk at a time."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import select, text

from pillarbox.ops.acts import Ops
from pillarbox.outbox.release import Released, release_keys
from pillarbox.schema.tables import outbox_blocked_key
from tests.ops.rows import Rows
from tests.support.database import Database, on_postgres
from tests.support.waiting import until

WHY = "a decision"


async def release(database: Database, event_id: UUID, chunk: int = 3) -> Released:
    """Release `order-1` as is done when the event at its head is settled."""
    async with database.engine.begin() as connection:
        return await connection.run_sync(
            release_keys, "default", {event_id: "order-1"}, chunk=chunk
        )


async def test_a_key_with_nothing_set_aside_is_free(ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(5)

    done = await ops.skip(event_id, reason=WHY)

    assert await rows.blocked() == {}
    assert done.released == Released(freed=1)


async def test_the_first_chunk_comes_back_and_the_block_moves_to_its_end(
    ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    ids = await rows.behind(*range(10, 18))

    await ops.skip(event_id, reason=WHY)

    assert await rows.claimable() == [10, 11, 12]
    assert await rows.blocked() == {"order-1": (ids[2], 12)}


async def test_chunks_follow_each_other_until_the_key_is_free(
    database: Database, ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    ids = await rows.behind(*range(10, 18))
    await ops.skip(event_id, reason=WHY)

    seen = []
    for settled in (ids[2], ids[5], ids[7]):
        released = await release(database, settled)
        seen.append((released.events, await rows.claimable(), await rows.blocked()))

    assert seen == [
        (3, list(range(10, 16)), {"order-1": (ids[5], 15)}),
        (2, list(range(10, 18)), {"order-1": (ids[7], 17)}),
        (0, list(range(10, 18)), {}),
    ]


async def test_an_event_in_the_middle_of_a_chunk_releases_nothing(
    database: Database, ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    ids = await rows.behind(10, 11, 12, 13)
    await ops.skip(event_id, reason=WHY)

    assert await release(database, ids[1]) == Released()

    assert await rows.claimable() == [10, 11, 12]


async def test_what_is_due_later_and_what_is_of_others_stays_where_it_is(
    ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    await rows.event(6, "NEW", set_aside="later")
    await rows.behind(7, key="order-2")
    await rows.behind(8, tenant_id="other")

    await ops.discard(event_id, reason=WHY)

    assert await rows.claimable() == []
    assert await rows.blocked() == {}


@on_postgres
async def test_what_came_back_is_in_the_feed(database: Database, ops: Ops, rows: Rows) -> None:
    event_id = await rows.blocking(5)
    await rows.behind(6, 7)
    await ops.skip(event_id, reason=WHY)

    marked = await database.scalar(
        "SELECT count(DISTINCT txid) FROM outbox WHERE seq IN (6, 7) AND txid IS NOT NULL"
    )

    assert marked == 1


async def test_the_block_moves_to_the_next_event_that_needs_a_decision(
    ops: Ops, rows: Rows
) -> None:
    first = await rows.blocking(5)
    await rows.behind(*range(6, 12), 13)
    second = await rows.event(12, "FAILED")

    await ops.skip(first, reason=WHY)

    assert await rows.claimable() == list(range(6, 12))
    assert await rows.blocked() == {"order-1": (second, 12)}


async def test_an_event_that_the_policy_let_pass_does_not_block_its_key_again(
    ops: Ops, rows: Rows
) -> None:
    await rows.event(4)
    blocker = await rows.blocking(5, "FAILED")
    await rows.behind(6)

    await ops.skip(blocker, reason=WHY)

    assert await rows.claimable() == [6]


@pytest.mark.parametrize("decided", ["skipped", "expired"])
async def test_an_event_that_is_decided_about_blocks_nobody(
    ops: Ops, rows: Rows, decided: str
) -> None:
    first = await rows.blocking(5)
    await rows.event(6, error_class=decided)
    await rows.behind(7)

    await ops.discard(first, reason=WHY)

    assert await rows.claimable() == [7]


@on_postgres
async def test_a_release_waits_for_whoever_sets_events_aside(
    database: Database, ops: Ops, rows: Rows
) -> None:
    event_id = await rows.blocking(5)
    await rows.event(6, "NEW")
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")

    async def waits() -> bool:
        async with database.engine.connect() as connection:
            return bool(await connection.scalar(waiting))

    async with asyncio.TaskGroup() as tasks, database.engine.begin() as projector:
        await projector.execute(select(outbox_blocked_key).with_for_update())
        act = tasks.create_task(ops.skip(event_id, reason=WHY))
        await until(waits, "the act waits for the blocked row")
        await projector.execute(text("UPDATE outbox SET set_aside = 'key' WHERE seq = 6"))

    assert act.result().released.events == 1
    assert await rows.claimable() == [6]
