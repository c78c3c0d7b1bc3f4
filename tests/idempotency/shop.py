"""A small shop over HTTP: whoever names himself may place orders, until he is revoked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox import Pillarbox, SQLAlchemyUnitOfWork
from tests.support.orders import Line, Order


class NewOrder(BaseModel):
    id: str
    total: int = 10


class OrderOut(BaseModel):
    id: str
    total: int


class OutOfStock(Exception):
    """A refusal of the domain, which the application answers with 409."""


@dataclass
class Shop:
    """The application, and what its endpoints saw."""

    box: Pillarbox
    app: FastAPI
    executed: list[str] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    proceed: asyncio.Event = field(default_factory=asyncio.Event)


async def place_order(uow: SQLAlchemyUnitOfWork, order: NewOrder) -> OrderOut:
    """Place an order: the handler that knows nothing of HTTP or of keys."""
    await uow.repository(Order).save(Order.place(order.id, order.total))
    await uow.commit()
    return OrderOut(id=order.id, total=order.total)


def make_shop(database: str | AsyncEngine, **options: Any) -> Shop:
    box = Pillarbox(database, service="shop", environ={})
    shop = Shop(box, FastAPI())

    async def user(request: Request, x_user: Annotated[str, Header()] = "") -> None:
        if not x_user:
            raise HTTPException(401)
        if x_user in shop.revoked:
            raise HTTPException(403)
        request.state.user_id = x_user

    route_class = box.idempotent_route(principal=lambda r: r.state.user_id, **options)
    router = APIRouter(route_class=route_class, dependencies=[Depends(user)])
    add_orders(shop, router)
    add_odd_answers(shop, router)
    shop.app.include_router(router)
    shop.app.include_router(router, prefix="/v2")
    plain = APIRouter(prefix="/plain", dependencies=[Depends(user)])
    add_orders(shop, plain)
    shop.app.include_router(plain)

    @shop.app.exception_handler(OutOfStock)
    async def out_of_stock(request: Request, error: OutOfStock) -> Response:
        return JSONResponse({"error": "out of stock"}, 409)

    return shop


def add_orders(shop: Shop, router: APIRouter) -> None:
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(shop.box.uow)]  # noqa: N806 - a type

    @router.post("/orders", status_code=201)
    async def place(body: NewOrder, uow: Uow) -> OrderOut:
        shop.executed.append(body.id)
        return await place_order(uow, body)

    @router.put("/orders/{order_id}")
    async def put(order_id: str, body: NewOrder, uow: Uow) -> OrderOut:
        shop.executed.append(order_id)
        return await place_order(uow, body)

    @router.get("/orders/{order_id}")
    async def read(order_id: str) -> str:
        shop.executed.append(order_id)
        return order_id

    @router.post("/slow", status_code=201)
    async def slow(body: NewOrder, uow: Uow) -> OrderOut:
        shop.executed.append(body.id)
        shop.entered.set()
        await shop.proceed.wait()
        return await place_order(uow, body)


def add_odd_answers(shop: Shop, router: APIRouter) -> None:
    """Add endpoints that place an order and then answer in some unusual way."""
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(shop.box.uow)]  # noqa: N806 - a type

    @router.post("/answers/{kind}")
    async def answer(kind: str, body: NewOrder, uow: Uow) -> Any:
        shop.executed.append(kind)
        if kind == "lost-line":
            uow.session.add(Line(id=body.id, order_id="nobody"))  # refused by COMMIT
        await place_order(uow, body)
        match kind:
            case "raises":
                raise ZeroDivisionError
            case "http-404":
                raise HTTPException(404, "no such shelf")
            case "domain":
                raise OutOfStock
            case _:
                return odd_answer(kind)

    @router.post("/rolled-back", status_code=409)
    async def rolled_back(body: NewOrder, uow: Uow) -> str:
        shop.executed.append(body.id)
        await uow.repository(Order).save(Order.place(body.id))
        await uow.session.flush()
        await uow.rollback()
        return "refused"

    @router.post("/sync")
    def in_a_thread(body: NewOrder) -> str:
        shop.executed.append(body.id)
        return body.id


def odd_answer(kind: str) -> Any:
    match kind:
        case "http-500":
            return JSONResponse({"error": "oops"}, 500)
        case "large":
            return Response(b"x" * 300_000, 201)
        case "stream":
            return StreamingResponse(_chunks(), 201)
        case "cookies":
            headers = {"Set-Cookie": "session=planted-secret", "Location": "/orders/o-1"}
            return Response(b"done", 201, headers | {"Authorization": "planted-secret"})
        case "empty":
            return Response(status_code=204)
        case _:
            return kind


async def _chunks() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"
