"""Old records go in bounded batches, and nobody waits for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import SqlAlchemyInbox, SyncSqlAlchemyInbox
from pillarbox.errors import InvalidConfig
from pillarbox.inbox.register import CLEANUP_BATCH
from pillarbox.schema.tables import inbox as inbox_table
from tests.inbox.targets import Target, stored, waits_for_a_lock
from tests.support.database import Database, on_postgres, on_sync
from tests.support.waiting import until

PATIENCE = 10


async def record(database: Database, count: int, days: float, **columns: str) -> None:
    """Write records as old as this."""
    at = datetime.now(UTC) - timedelta(days=days)
    shared = {"tenant_id": "default", "consumer": "default", "event_type": "T", **columns}
    rows = [{"message_id": f"{days}-{n:05}", "processed_at": at, **shared} for n in range(count)]
    async with database.engine.begin() as connection:
        await connection.execute(insert(inbox_table), rows)


@contextmanager
def deletions(engine: Engine) -> Iterator[list[int]]:
    """Count the rows of each statement that deletes."""
    counts: list[int] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "DELETE FROM inbox" in statement:
            counts.append(cursor.rowcount)

    event.listen(engine, "after_cursor_execute", note)
    yield counts
    event.remove(engine, "after_cursor_execute", note)


async def test_what_is_older_goes_and_what_is_younger_stays(
    database: Database, target: Target
) -> None:
    await record(database, 3, days=30.1)
    await record(database, 2, days=29.9)

    assert await SqlAlchemyInbox(target).cleanup_old_records() == 3
    assert await SqlAlchemyInbox(target).cleanup_old_records(older_than_days=30) == 0
    assert await stored(database) == ["29.9-00000", "29.9-00001"]
    assert await SqlAlchemyInbox(target).cleanup_old_records(older_than_days=1) == 2


async def test_other_consumers_and_tenants_keep_their_records(
    database: Database, target: Target
) -> None:
    await record(database, 1, days=31, consumer="mail")
    await record(database, 1, days=32, tenant_id="acme")
    await record(database, 1, days=33)

    assert await SqlAlchemyInbox(target).cleanup_old_records() == 1
    assert await stored(database) == ["31-00000", "32-00000"]


async def test_a_thousand_rows_go_with_one_statement_and_one_commit(
    database: Database, target: Target
) -> None:
    await record(database, 2 * CLEANUP_BATCH + 5, days=40)

    with deletions(database.engine.sync_engine) as counts:
        assert await SqlAlchemyInbox(target).cleanup_old_records() == 2 * CLEANUP_BATCH + 5

    assert counts == [CLEANUP_BATCH, CLEANUP_BATCH, 5]
    assert not target.in_transaction()
    assert await stored(database) == []


async def test_inside_a_transaction_it_waits_for_the_callers_commit(
    database: Database, target: Target
) -> None:
    await record(database, CLEANUP_BATCH + 5, days=40)
    inbox = SqlAlchemyInbox(target)
    await inbox.claim("m-1", event_type="T")

    assert await inbox.cleanup_old_records() == CLEANUP_BATCH + 5
    assert target.in_transaction()
    await target.rollback()

    assert len(await stored(database)) == CLEANUP_BATCH + 5


@on_postgres
async def test_a_running_claim_and_a_cleanup_do_not_wait_for_each_other(
    database: Database,
) -> None:
    await record(database, CLEANUP_BATCH * 3, days=40)
    async with database.sessions() as claiming, database.sessions() as cleaning:
        inbox = SqlAlchemyInbox(claiming)
        assert await inbox.claim("m-1", event_type="T")

        async with asyncio.timeout(PATIENCE):
            assert await SqlAlchemyInbox(cleaning).cleanup_old_records() == CLEANUP_BATCH * 3
            assert await inbox.claim("m-2", event_type="T")
        await claiming.commit()

    assert await stored(database) == ["m-1", "m-2"]


@on_postgres
async def test_two_cleanups_share_the_work_without_waiting(database: Database) -> None:
    await record(database, CLEANUP_BATCH * 4, days=40)

    async def clean() -> int:
        async with database.sessions() as session:
            return await SqlAlchemyInbox(session).cleanup_old_records()

    async with database.sessions() as slow:
        await slow.connection()
        held = await SqlAlchemyInbox(slow).cleanup_old_records()
        async with asyncio.timeout(PATIENCE):
            assert (held, await clean()) == (CLEANUP_BATCH * 4, 0)
        await slow.rollback()

    assert sum(await asyncio.gather(clean(), clean())) == CLEANUP_BATCH * 4
    assert await stored(database) == []


@on_postgres
async def test_a_message_that_comes_again_while_its_record_goes_is_decided_at_the_commit(
    database: Database,
) -> None:
    await record(database, 1, days=40)
    async with database.sessions() as cleaning, database.sessions() as claiming:
        await cleaning.connection()
        await SqlAlchemyInbox(cleaning).cleanup_old_records()
        async with asyncio.TaskGroup() as tasks:
            again = tasks.create_task(SqlAlchemyInbox(claiming).claim("40-00000", event_type="T"))
            await until(lambda: waits_for_a_lock(database), "the claim waits")
            await cleaning.rollback()

        assert again.result() is False


@pytest.mark.parametrize("days", [0, 0.001, -1, 10**9, float("nan"), True, None, "30"])
@on_sync
async def test_a_retention_that_cannot_be_meant_is_refused(database: Database, days: Any) -> None:
    await record(database, 1, days=40)

    async with AsyncSession(database.engine) as session:
        with pytest.raises(InvalidConfig, match="older_than_days"):
            await SqlAlchemyInbox(session).cleanup_old_records(days)

    assert len(await stored(database)) == 1


@on_sync
async def test_the_sync_inbox_cleans_up_as_well(database: Database) -> None:
    await record(database, CLEANUP_BATCH + 1, days=40)

    with database.sync_engine() as engine, engine.connect() as connection:
        assert SyncSqlAlchemyInbox(connection).cleanup_old_records() == CLEANUP_BATCH + 1

    assert await stored(database) == []
