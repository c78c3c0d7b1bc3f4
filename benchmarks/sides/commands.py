"""A service with HTTP commands in a process of its own: FastAPI on uvicorn, as one would run it.

One endpoint places an order by a unit of work, with one event. It stands behind our route class,
on a plain router, and once more with a key by hand: that one inserts the key's row, places the order
and completes the row with its answer by itself, in the same transaction, which is the least that any
solution on this table costs. It does not hold off a second request, keeps no quota, and records no
refusals.
"""

import argparse
import signal
import socket
import sys
from hashlib import sha256
from typing import Annotated, Final, NoReturn

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks import shop
from benchmarks.sides.by_hand import tell
from pillarbox import Pillarbox, SQLAlchemyUnitOfWork

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

UnitOfWork = SQLAlchemyUnitOfWork


class NewLine(BaseModel):
    """A line of the order in a request."""

    number: int
    sku: str
    quantity: int
    cents: int


class NewOrder(BaseModel):
    """The body of a request."""

    id: int
    customer: str
    lines: list[NewLine]


async def _place(body: NewOrder, uow: UnitOfWork) -> None:
    order = shop.Order(id=body.id, customer=body.customer, cents=7996)
    order.lines = [shop.OrderLine(**line.model_dump()) for line in body.lines]
    order.add_event(shop.order_confirmed(body.id))
    await uow.repository(shop.Order).save(order)


def application(engine: AsyncEngine) -> FastAPI:
    """Make the service."""
    box = Pillarbox(engine, service="shop", environ={})

    async def place(body: NewOrder, uow: Annotated[UnitOfWork, Depends(box.uow)]) -> NewOrder:
        await _place(body, uow)
        await uow.commit()
        return body

    async def place_by_hand(
        request: Request, body: NewOrder, uow: Annotated[UnitOfWork, Depends(box.uow)]
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
    app.post("/by-hand/orders", status_code=201)(place_by_hand)
    ours = APIRouter(route_class=box.idempotent_route(principal=lambda _: "ada", quota=100_000))
    plain = APIRouter(prefix="/plain")
    for router in (ours, plain):
        router.post("/orders", status_code=201)(place)
        app.include_router(router)
    return app


def _ended(_number: int, _frame: object) -> NoReturn:
    tell(stopped=True)
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the database, with its driver")
    parser.add_argument("--connections", type=int, required=True)
    given = parser.parse_args()
    engine = create_async_engine(given.url, pool_size=given.connections, max_overflow=0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            application(engine), access_log=False, log_level="warning", timeout_keep_alive=3600
        )
        tell(port=listening.getsockname()[1])
        # uvicorn drains, and then raises the signal once more.
        signal.signal(signal.SIGTERM, _ended)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
