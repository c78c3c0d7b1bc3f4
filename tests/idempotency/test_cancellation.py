"""Cancelled at any await, once or twice, a command has taken effect with its answer, or not at all."""

from itertools import count

import httpx
import pytest
from sqlalchemy.pool import QueuePool

from tests.idempotency.shop import Shop
from tests.support.cancelling import Cancel, CancelledAt, on_falling_asleep, on_waking_up, run
from tests.support.database import Database, on
from tests.support.waiting import until

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

FEWEST_AWAITS = 4  # the claim, the order, its event with the answer, the commit


@pytest.mark.parametrize("later", [0, 1, 2], ids=["once", "and at the next", "and after that"])
@pytest.mark.parametrize("cancel", [on_falling_asleep, on_waking_up])
async def test_a_command_that_is_cancelled_at_any_await_is_executed_or_answered(
    database: Database, shop: Shop, client: httpx.AsyncClient, cancel: Cancel, later: int
) -> None:
    ids: list[str] = []
    replays = 0
    for step in count(1):
        ids.append(f"o-{step}")
        steps = frozenset({step, step + later})
        cancelled = await run(CancelledAt(place(client, ids[-1]), steps, cancel))
        if not later:
            assert open_connections(shop) == 0
        await until(lambda: nothing_is_open(database, shop), "the end of all transactions")

        again = await place(client, ids[-1])

        assert (again.status_code, again.json().get("id")) == (201, ids[-1])
        replays += "idempotency-replayed" in again.headers
        if not cancelled:
            break

    assert sorted(await database.order_ids()) == sorted(ids)
    assert await database.event_types() == ["OrderPlaced"] * len(ids)
    assert step > FEWEST_AWAITS
    assert replays > 0


async def place(client: httpx.AsyncClient, order_id: str) -> httpx.Response:
    headers = {"Idempotency-Key": f'"{order_id}"'}
    return await client.post("/orders", json={"id": order_id, "total": 7}, headers=headers)


def open_connections(shop: Shop) -> int:
    pool = shop.box.engine.pool
    assert isinstance(pool, QueuePool)
    return pool.checkedout()


async def nothing_is_open(database: Database, shop: Shop) -> bool:
    """Tell whether all is given back; what SQLite has still to undo, the next writer waits for."""
    if open_connections(shop):
        return False
    return not database.is_postgres or await no_transaction_is_open(database)


async def no_transaction_is_open(database: Database) -> bool:
    open_ones: int = await database.scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
    )
    return open_ones == 0
