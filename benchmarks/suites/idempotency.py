"""What an Idempotency-Key costs a request.

The same endpoint of the same FastAPI application, called without a network: it places an order by
a unit of work, with one event. PostgreSQL 18 with fsync and default durability.

By hand means an endpoint that inserts the key's row, places the order and completes the row with its
answer by itself, in the same transaction: the least that any solution on this table costs. It does
not hold off a second request, keeps no quota, and records no refusals.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Annotated, Any, Final

import httpx
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks import shop
from benchmarks.measure import Operation, alternate, one_by_one, side_by_side
from benchmarks.report import Report, Row, at_most
from pillarbox import Pillarbox, SQLAlchemyUnitOfWork
from pillarbox.servers import Postgres

CLIENTS: Final = 8
REQUESTS: Final = {1: 20, CLIENTS: 80}
BLOCKS: Final = {1: 12, CLIENTS: 6}

WITH_KEY: Final = "with key"
WITHOUT: Final = "same without key"
PLAIN: Final = "plain router, without key"
BY_HAND: Final = "key by hand"
REPLAY: Final = "repeated"

_CLAIM: Final = text(
    "INSERT INTO idempotency (tenant_id, principal, operation, key_hash, fingerprint, state,"
    " created_at, expires_at) VALUES ('default', 'ada', 'POST /orders', :key, :seen, 'running',"
    " now(), now() + interval '1 day') ON CONFLICT DO NOTHING RETURNING key_hash"
)
_RECORD: Final = text(
    "UPDATE idempotency SET state = 'done', status_code = 201, headers = CAST(:headers AS json),"
    " body = :body WHERE tenant_id = 'default' AND principal = 'ada'"
    " AND operation = 'POST /orders' AND key_hash = :key"
)
_HEADERS: Final = '[["content-type","application/json"]]'


class NewOrder(BaseModel):
    """The body of a request."""

    id: int
    customer: str = "Ada Lovelace"


async def run(report: Report, rounds: int) -> None:
    """Measure with both drivers, one client and several."""
    report.packages = ("sqlalchemy", "fastapi", *shop.DRIVERS)
    with Postgres(version=18) as postgres:
        report.servers["PostgreSQL"] = postgres.version
        shop.create_tables(postgres.url)
        for driver, clients in itertools.product(shop.DRIVERS, (1, CLIENTS)):
            measure = f"{driver}, place an order, {clients} client{'s'[: clients - 1]}"
            if report.wants(measure):
                url = postgres.url.replace("postgresql://", f"postgresql+{driver}://")
                engine = create_async_engine(url, pool_size=CLIENTS, max_overflow=0)
                await _measure(report, rounds, engine, measure, clients)
                await engine.dispose()


async def _measure(
    report: Report, rounds: int, engine: AsyncEngine, measure: str, clients: int
) -> None:
    async with _requests(engine) as requests:
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
async def _requests(engine: AsyncEngine) -> AsyncIterator["Requests"]:
    transport = httpx.ASGITransport(_application(engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield Requests(engine, client)


class Requests:
    """The same request in several ways; each places one order, but the repeated one."""

    def __init__(self, engine: AsyncEngine, client: httpx.AsyncClient) -> None:
        self._engine, self._client = engine, client
        self._ids = itertools.count(shop.KEYS)

    def sides(self) -> dict[str, Operation]:
        """Name the ways."""
        return {
            WITH_KEY: self.with_key,
            WITHOUT: self.without_key,
            PLAIN: self.plain,
            BY_HAND: self.by_hand,
            REPLAY: self.repeated,
        }

    async def with_key(self, writer: int) -> None:
        """Send a new key with each order."""
        del writer
        number = next(self._ids)
        await self._post("/orders", number, {"Idempotency-Key": f'"key-{number}"'})

    async def without_key(self, writer: int) -> None:
        """Send no key to the same route."""
        del writer
        await self._post("/orders", next(self._ids), {})

    async def plain(self, writer: int) -> None:
        """Send no key to a route of FastAPI's own class."""
        del writer
        await self._post("/plain/orders", next(self._ids), {})

    async def by_hand(self, writer: int) -> None:
        """Send a new key to an endpoint that sees to it by itself."""
        del writer
        number = next(self._ids)
        await self._post("/by-hand/orders", number, {"Idempotency-Key": f'"key-{number}"'})

    async def repeated(self, writer: int) -> None:
        """Send one old key and its request again."""
        await self._post("/orders", -1 - writer, {"Idempotency-Key": f'"old-{writer}"'})

    async def start_afresh(self) -> None:
        """Empty the tables, and record the answers that are repeated."""
        async with self._engine.begin() as connection:
            await connection.execute(
                text("TRUNCATE outbox, idempotency, shop_order, shop_order_line")
            )
        for writer in range(CLIENTS):
            await self.repeated(writer)

    async def _post(self, path: str, number: int, headers: dict[str, str]) -> None:
        answer = await self._client.post(path, json={"id": number}, headers=headers)
        if answer.status_code != 201:
            raise AssertionError(f"{path} answers {answer.status_code}: {answer.text}")


async def _place(body: NewOrder, uow: SQLAlchemyUnitOfWork) -> None:
    order = shop.Order(id=body.id, customer=body.customer, cents=7996)
    order.add_event(shop.order_confirmed(body.id))
    await uow.repository(shop.Order).save(order)


def _application(engine: AsyncEngine) -> FastAPI:
    box = Pillarbox(engine, service="shop", environ={})

    async def place(
        body: NewOrder, uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]
    ) -> NewOrder:
        await _place(body, uow)
        await uow.commit()
        return body

    async def place_by_hand(
        request: Request, body: NewOrder, uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]
    ) -> Response:
        key = sha256(request.headers["Idempotency-Key"].encode()).hexdigest()
        seen = sha256(await request.body()).hexdigest()
        claimed = await uow.session.execute(_CLAIM, {"key": key, "seen": seen})
        assert claimed.first() is not None
        await _place(body, uow)
        await uow.session.flush()
        answer = body.model_dump_json().encode()
        await uow.session.execute(_RECORD, {"key": key, "headers": _HEADERS, "body": answer})
        await uow.commit()
        return Response(answer, status_code=201, media_type="application/json")

    app = FastAPI()
    app.post("/by-hand/orders")(place_by_hand)
    ours = APIRouter(route_class=box.idempotent_route(principal=lambda _: "ada", quota=100_000))
    plain = APIRouter(prefix="/plain")
    for router in (ours, plain):
        router.post("/orders", status_code=201)(place)
        app.include_router(router)
    return app
