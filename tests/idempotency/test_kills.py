"""A server that is killed in the middle of a command: a repetition executes or is answered."""

import asyncio
import json

import httpx
import pytest

from tests.idempotency.conftest import Make, client_of
from tests.idempotency.processes import server
from tests.idempotency.server import POINTS
from tests.support.database import Database, on
from tests.support.waiting import until

pytestmark = [
    pytest.mark.faults,
    on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite"),
]

ORDER = {"id": "o-1", "total": 7}
HEADERS = {"Idempotency-Key": "k-1", "X-User": "ada"}
JSON = {"Content-Type": "application/json"}
COMMITTED = {"after-commit", "before-first-byte"}
WITH_THE_RECORD = {"recorded", "before-commit"}  # psycopg sends record and COMMIT together


async def nobody_is_at_work(database: Database) -> bool:
    """Tell whether all transactions of others have ended; SQLite's end with their process."""
    if not database.is_postgres:
        return True
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
    )
    return bool(await database.scalar(others) == 0)


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_a_repetition_executes_or_is_answered_and_never_both_or_neither(
    database: Database, make: Make, point: str
) -> None:
    with server(database, point) as (process, address):
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            with pytest.raises(httpx.TransportError):
                await client.post("/orders", json=ORDER, headers=HEADERS)
        assert process.wait(30) == -9
    await until(lambda: nobody_is_at_work(database), "the server has noticed the death")
    orders_after_kill = await database.order_ids()

    async with client_of(make()) as client:
        again = await client.post("/orders", json=ORDER, headers=HEADERS)
        third = await client.post("/orders", json=ORDER, headers=HEADERS)

    shares = database.name.endswith("psycopg")
    committed = point in (COMMITTED | WITH_THE_RECORD if shares else COMMITTED)
    assert orders_after_kill == (["o-1"] if committed else [])
    assert (again.status_code, again.json()) == (201, ORDER)
    assert ("idempotency-replayed" in again.headers) is committed
    assert third.content == again.content
    assert third.headers["idempotency-replayed"] == "true"
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_client_that_hangs_up_finds_the_answer_when_it_comes_back(
    database: Database, make: Make
) -> None:
    body = json.dumps(ORDER, separators=(",", ":")).encode()
    lines = ["POST /orders HTTP/1.1", "host: shop", "content-type: application/json",
             f"content-length: {len(body)}", *(f"{n}: {v}" for n, v in HEADERS.items())]  # fmt: skip
    with server(database) as (_, address):
        _, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        writer.close()

        async def done() -> bool:
            return await database.order_ids() == ["o-1"]

        await until(done, "the effect of the command", 30)

    async with client_of(make()) as client:
        answer = await client.post("/orders", content=body, headers=HEADERS | JSON)

    assert answer.headers["idempotency-replayed"] == "true"
    assert answer.json() == ORDER
    assert await database.event_types() == ["OrderPlaced"]
