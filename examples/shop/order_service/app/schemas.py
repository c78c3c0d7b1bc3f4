"""What goes in and out over HTTP."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Self

from pydantic import BaseModel, Field, model_validator

from examples.shop.common.fields import Name
from examples.shop.order_service.app.commands import CreateOrder
from examples.shop.order_service.app.domain import Order
from examples.shop.order_service.app.events import Item

MOST: Final = Decimal("9999999999.99")
Money = Annotated[Decimal, Field(ge=0, le=MOST, decimal_places=2)]
Quantity = Annotated[int, Field(ge=1, le=1_000)]


class RequestedItem(BaseModel):
    product_id: Name
    quantity: Quantity
    price: Money


class CreateOrderRequest(BaseModel):
    """`POST /orders`: some items; the total is their sum."""

    user_id: Name
    items: Annotated[list[RequestedItem], Field(min_length=1, max_length=20)]

    @property
    def total(self) -> Decimal:
        return sum((each.quantity * each.price for each in self.items), Decimal())

    @model_validator(mode="after")
    def refuse_too_much(self) -> Self:
        if self.total > MOST:
            raise ValueError(f"the total is more than {MOST}")
        return self

    def command(self) -> CreateOrder:
        items = [Item(each.product_id, each.quantity) for each in self.items]
        return CreateOrder(self.user_id, items, self.total)


class SimpleOrderRequest(BaseModel):
    """`POST /api/orders`: one product at an agreed price."""

    user_id: Name
    product_id: Name
    quantity: Quantity
    total_amount: Money

    def command(self) -> CreateOrder:
        items = [Item(self.product_id, self.quantity)]
        return CreateOrder(self.user_id, items, self.total_amount)


class OrderResponse(BaseModel):
    order_id: str
    user_id: str
    items: list[Item]
    total_amount: Decimal
    status: str
    created_at: datetime

    @classmethod
    def of(cls, order: Order) -> "OrderResponse":
        return cls(
            order_id=order.id,
            user_id=order.user_id,
            items=[*order.items],
            total_amount=order.total_amount,
            status=order.status,
            created_at=order.created_at,
        )
