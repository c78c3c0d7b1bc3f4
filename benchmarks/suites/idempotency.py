"""What an Idempotency-Key costs a request.

A FastAPI service on uvicorn, in a process of its own, and clients that send over loopback and keep
their connections. A request places an order by a unit of work, with one event: with its four lines,
and without any, which is the smallest command there is. PostgreSQL 18 with fsync and default
durability.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks import shop
from benchmarks.measure import Operation, alternate, one_by_one, side_by_side
from benchmarks.processes import running_side
from benchmarks.report import Report, Row, at_most
from pillarbox.servers import Postgres

CLIENTS: Final = 8
REQUESTS: Final = {1: 20, CLIENTS: 80}
BLOCKS: Final = {1: 12, CLIENTS: 6}
COMMANDS: Final = {"place an order": shop.LINES, "insert one row": 0}

WITH_KEY: Final = "with key"
WITHOUT: Final = "same without key"
PLAIN: Final = "plain router, without key"
BY_HAND: Final = "key by hand"
REPLAY: Final = "repeated"


async def run(report: Report, rounds: int) -> None:
    """Measure with both drivers, one client and several."""
    report.packages = ("sqlalchemy", "fastapi", "uvicorn", *shop.DRIVERS)
    with Postgres(version=18) as postgres:
        report.servers["PostgreSQL"] = postgres.version
        shop.create_tables(postgres.url)
        for driver in shop.DRIVERS:
            url = postgres.url.replace("postgresql://", f"postgresql+{driver}://")
            async with (
                running_side("commands", url, "--connections", CLIENTS) as service,
                _clients(service.ready["port"]) as clients,
            ):
                await _measure_driver(report, rounds, driver, url, clients)


async def _measure_driver(
    report: Report, rounds: int, driver: str, url: str, clients: list["Client"]
) -> None:
    engine = create_async_engine(url)
    for (command, lines), count in itertools.product(COMMANDS.items(), (1, CLIENTS)):
        measure = f"{driver}, {command}, {count} client{'s'[: count - 1]}"
        if report.wants(measure):
            await _measure(report, rounds, measure, count, Requests(engine, clients, lines))
    await engine.dispose()


async def _measure(
    report: Report, rounds: int, measure: str, clients: int, requests: "Requests"
) -> None:
    found = await alternate(
        {name: _block(operation, clients) for name, operation in requests.sides().items()},
        rounds=rounds,
        blocks=BLOCKS[clients],
        before_round=requests.start_afresh,
    )
    millis = {name: [second * 1000 for second in seconds] for name, seconds in found.items()}
    report.add(Row(measure, "ms", millis[WITH_KEY], WITHOUT, millis[WITHOUT], at_most(1.25)))
    report.add(Row(measure, "ms", millis[WITH_KEY], PLAIN, millis[PLAIN], at_most(1.25)))
    report.add(Row(measure, "ms", millis[WITH_KEY], BY_HAND, millis[BY_HAND]))
    report.add(Row(f"{measure}, repeated", "ms", millis[REPLAY], WITHOUT, millis[WITHOUT]))


def _block(operation: Operation, clients: int) -> Callable[[], Awaitable[Any]]:
    count = REQUESTS[clients]
    if clients == 1:
        return one_by_one(operation, count)
    return side_by_side(operation, count, writers=clients)


@asynccontextmanager
async def _clients(port: int) -> AsyncIterator[list["Client"]]:
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(CLIENTS)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


class Client:
    """One connection to the service: no library is in the way that would cost as much as it does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: bytes, key: str | None) -> None:
        """Send a command, and refuse any answer but 201."""
        head = f"POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        if key is not None:
            head += f'Idempotency-Key: "{key}"\r\n'
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.partition("content-length:")[2].partition("\r\n")[0])
        content = await self._reader.readexactly(length)
        if not answered.startswith("http/1.1 201 "):
            raise AssertionError(f"{path} answers {answered}{content.decode()}")

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class Requests:
    """The same request in several ways; each places one order, but the repeated one."""

    def __init__(self, engine: AsyncEngine, clients: list[Client], lines: int) -> None:
        self._engine, self._clients = engine, clients
        self._ids = itertools.count(shop.KEYS)
        self._lines = [
            {"number": number, "sku": f"sku-{number}", "quantity": 1, "cents": 1999}
            for number in range(lines)
        ]

    def sides(self) -> dict[str, Operation]:
        """Name the ways."""
        return {
            WITH_KEY: self.with_key,
            WITHOUT: self.without_key,
            PLAIN: self.plain,
            BY_HAND: self.by_hand,
            REPLAY: self.repeated,
        }

    async def with_key(self, client: int) -> None:
        """Send a new key with each order."""
        number = next(self._ids)
        await self._post(client, "/orders", number, f"key-{number}")

    async def without_key(self, client: int) -> None:
        """Send no key to the same route."""
        await self._post(client, "/orders", next(self._ids))

    async def plain(self, client: int) -> None:
        """Send no key to a route of FastAPI's own class."""
        await self._post(client, "/plain/orders", next(self._ids))

    async def by_hand(self, client: int) -> None:
        """Send a new key to an endpoint that sees to it by itself."""
        number = next(self._ids)
        await self._post(client, "/by-hand/orders", number, f"key-{number}")

    async def repeated(self, client: int) -> None:
        """Send one old key and its request again."""
        await self._post(client, "/orders", -1 - client, f"old-{client}")

    async def start_afresh(self) -> None:
        """Empty the tables, and record the answers that are repeated."""
        async with self._engine.begin() as connection:
            await connection.execute(
                text("TRUNCATE outbox, idempotency, shop_order, shop_order_line")
            )
        for client in range(CLIENTS):
            await self.repeated(client)

    async def _post(self, client: int, path: str, number: int, key: str | None = None) -> None:
        body = {"id": number, "customer": "Ada Lovelace", "lines": self._lines}
        await self._clients[client].post(path, orjson.dumps(body), key)
