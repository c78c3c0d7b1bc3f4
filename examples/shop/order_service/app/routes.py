"""The HTTP side of the order service."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.common.fields import Name
from examples.shop.order_service.app.box import box
from examples.shop.order_service.app.commands import OrderCommandHandler
from examples.shop.order_service.app.queries import GetOrder, GetOrderHandler, OrderSummary
from examples.shop.order_service.app.schemas import (
    CreateOrderRequest,
    OrderResponse,
    SimpleOrderRequest,
)
from examples.shop.order_service.app.view import Orders
from pillarbox import OutboxRecord, ReadDAO, SQLAlchemyUnitOfWork

PENDING_LIMIT: Final = 50


def caller(request: Request, x_user: Annotated[Name, Header()] = "guest") -> None:
    """Say who calls. Here a header says so; in your service it is who has logged in."""
    request.state.user_id = x_user


def handler(uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]) -> OrderCommandHandler:
    return OrderCommandHandler(uow)


def orders(session: Annotated[AsyncSession, Depends(box.session)]) -> GetOrderHandler:
    return GetOrderHandler(ReadDAO(session, Orders, tenancy=box.settings.tenancy))


commands = APIRouter(
    route_class=box.idempotent_route(principal=lambda request: request.state.user_id),
    dependencies=[Depends(caller)],
)
queries = APIRouter()


@commands.post("/orders", status_code=HTTPStatus.CREATED)
async def create_order(
    body: CreateOrderRequest, handle: Annotated[OrderCommandHandler, Depends(handler)]
) -> OrderResponse:
    return OrderResponse.of(await handle.create(body.command()))


@commands.post("/api/orders", status_code=HTTPStatus.CREATED)
async def create_simple_order(
    body: SimpleOrderRequest, handle: Annotated[OrderCommandHandler, Depends(handler)]
) -> OrderResponse:
    return OrderResponse.of(await handle.create(body.command()))


@queries.get("/orders/{order_id}")
async def get_order(
    order_id: Name, handle: Annotated[GetOrderHandler, Depends(orders)]
) -> OrderSummary:
    found = await handle.handle(GetOrder(order_id))
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no order {order_id}, or not yet")
    return found


@queries.get("/api/outbox/pending")
async def pending(
    session: Annotated[AsyncSession, Depends(box.session)],
) -> list[dict[str, Any]]:
    """List the tenant's events that are not delivered yet, the oldest first."""
    waiting = (
        select(OutboxRecord)
        .where(OutboxRecord.status != "SENT")
        .order_by(OutboxRecord.seq)
        .limit(PENDING_LIMIT)
    )
    return [
        {
            "id": str(record.id),
            "event_type": record.event_type,
            "aggregate_id": record.aggregate_id,
            "status": record.status,
            "created_at": record.created_at,
        }
        for record in await session.scalars(waiting)
    ]
