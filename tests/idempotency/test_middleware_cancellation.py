"""The weaker mode, cancelled at any await: a repetition is answered, or executes after the lease."""

from datetime import UTC, datetime
from itertools import count

import httpx
import pytest
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.pool import QueuePool

from pillarbox.database import make_engine
from pillarbox.schema.tables import idempotency
from tests.idempotency.test_cancellation import no_transaction_is_open
from tests.idempotency.test_middleware import Till
from tests.support.cancelling import Cancel, CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.database import Database, on
from tests.support.waiting import until

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

FEWEST_AWAITS = 4  # the claim, its commit, the record, its commit
TWICE = 2  # cancelled between the application's end and the record, which is the gap it has


async def sell(client: httpx.AsyncClient, what: str) -> httpx.Response:
    return await client.post("/sale", content=what, headers={"Idempotency-Key": what})


async def let_leases_run_out(database: Database) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    held = idempotency.c.lease_until.is_not(None)
    async with database.engine.begin() as connection:
        await connection.execute(update(idempotency).where(held).values(lease_until=past))


@pytest.mark.parametrize("cancel", [on_falling_asleep, on_waking_up])
async def test_a_command_that_is_cancelled_at_any_await_is_not_lost(
    database: Database, cancel: Cancel
) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM idempotency"))
    engine, till = make_engine(database.url), Till(database)
    till.open(async_sessionmaker(engine))
    transport = httpx.ASGITransport(till, raise_app_exceptions=False)
    seen = dict.fromkeys(("replayed", "executed", "held off"), 0)
    async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
        for step in count(1):
            what = f"tea-{step}"
            cancelled = await run(CancelledAt(sell(client, what), frozenset({step}), cancel))
            assert isinstance(engine.pool, QueuePool)
            assert engine.pool.checkedout() == 0
            if database.is_postgres:  # what SQLite has still to undo, the next writer waits for
                await until(lambda: no_transaction_is_open(database), "the end of all transactions")

            again = await sell(client, what)
            if again.status_code == httpx.codes.CONFLICT:
                seen["held off"] += 1
                await let_leases_run_out(database)
                again = await sell(client, what)

            assert again.status_code == httpx.codes.CREATED
            seen["replayed" if "idempotency-replayed" in again.headers else "executed"] += 1
            assert 1 <= till.executed.count(what) <= TWICE
            if not cancelled:
                break
    await engine.dispose()

    assert step > FEWEST_AWAITS
    assert all(seen.values())
