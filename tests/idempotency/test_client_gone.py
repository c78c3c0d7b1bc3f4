"""A client that goes in the middle of its request: nothing is executed, and its key stays free."""

import asyncio
import json

import httpx
import pytest

from tests.idempotency.keys import K1, ORDER, keys
from tests.idempotency.processes import server
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

BODY = json.dumps(ORDER, separators=(",", ":")).encode()
HEADERS = K1 | {"X-User": "ada", "Content-Type": "application/json"}


async def send_half(address: str, path: str) -> bytes:
    """Declare a whole body, send half of it and no more; return what the server says to that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    head = [f"POST {path} HTTP/1.1", "host: shop", f"content-length: {len(BODY)}",
            *(f"{name}: {value}" for name, value in HEADERS.items())]  # fmt: skip
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + BODY[: len(BODY) // 2])
    writer.write_eof()
    said = await asyncio.wait_for(reader.read(), 30)  # to the end: the server is done with it
    writer.close()
    return said


@pytest.mark.parametrize(
    ("mode", "path", "status"),
    [("strong", "/orders", [b"400"]), ("weak", "/plain/orders", [])],
    ids=["strong", "weaker"],
)
async def test_half_a_request_executes_nothing_and_the_whole_one_is_executed_afterwards(
    database: Database, mode: str, path: str, status: list[bytes]
) -> None:
    with server(database, "nowhere", mode) as (_, address):
        said = await send_half(address, path)
        left = (await keys(database), await database.order_ids())
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            whole = await client.post(path, content=BODY, headers=HEADERS)

    assert (
        said.split()[1:2] == status
    )  # a framework has to answer something, an ASGI application has not
    assert left == (0, [])
    assert (whole.status_code, whole.json()) == (201, ORDER)
    assert "idempotency-replayed" not in whole.headers
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]
