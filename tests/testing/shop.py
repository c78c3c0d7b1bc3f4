"""The short programs of a shop: orders over HTTP, payments from their events."""

from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request
from pydantic import BaseModel
from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from pillarbox import AggregateRoot, Context, DomainEvent, Pillarbox, SQLAlchemyUnitOfWork
from tests.support.orders import Base


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class Order(AggregateRoot, Base):
    __tablename__ = "testing_orders"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[Decimal]

    @classmethod
    def create(cls, order_id: str, total: Decimal) -> "Order":
        order = cls(id=order_id, total=total)
        order.add_event(OrderCreated(order_id, total))
        return order


class Payment(Base):
    __tablename__ = "testing_payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[Decimal]


class NewOrder(BaseModel):
    id: str
    total: Decimal


class OrderOut(BaseModel):
    id: str


class Refusal(Exception):
    """What a handler raises in tests of failures."""


class Shop:
    """A service that takes orders and is paid for them."""

    def __init__(self, box: Pillarbox, **lifespan: bool) -> None:
        self.box = box
        self.refuses: set[str] = set()
        self.app = FastAPI(lifespan=box.lifespan(**lifespan))
        self.app.include_router(self._orders())
        self._payments()

    def _orders(self) -> APIRouter:
        box = self.box

        def caller(request: Request, x_user: Annotated[str, Header()] = "ada") -> None:
            request.state.user_id = x_user

        router = APIRouter(
            route_class=box.idempotent_route(principal=lambda r: r.state.user_id),
            dependencies=[Depends(caller)],
        )

        @router.post("/orders", status_code=201)
        async def place(
            body: NewOrder, uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]
        ) -> OrderOut:
            order = Order.create(body.id, body.total)
            await uow.repository(Order).save(order)
            if body.id in self.refuses:
                await uow.session.flush()
                raise Refusal
            await uow.commit()
            return OrderOut(id=order.id)

        return router

    def _payments(self) -> None:
        pay = self.box.consumer("payments", topics=["orders.order"])

        @pay.on("OrderCreated")
        async def charge(event: OrderCreated, ctx: Context) -> None:
            ctx.session.add(Payment(order_id=event.order_id, amount=event.total))
            await ctx.outbox.add(PaymentProcessed(event.order_id), key=event.order_id)
            if event.order_id in self.refuses:
                raise Refusal(event.order_id)


ORDER: dict[str, Any] = {"id": "o-1", "total": "9.90"}
