"""The order: knows neither tables nor messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from uuid import uuid4

from examples.shop.order_service.app.events import (
    Item,
    OrderConfirmed,
    OrderCreated,
    OrderRejected,
)
from pillarbox import AggregateRoot


class Status(StrEnum):
    CREATED = "CREATED"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"


@dataclass(eq=False)
class Order(AggregateRoot):
    """An order is created, and then confirmed or rejected, once."""

    id: str
    user_id: str
    items: Sequence[Item]
    total_amount: Decimal
    created_at: datetime
    status: Status = Status.CREATED
    version: int | None = None

    @classmethod
    def create(cls, user_id: str, items: Sequence[Item], total_amount: Decimal) -> "Order":
        order = cls(uuid4().hex, user_id, items, total_amount, datetime.now(UTC))
        only = items[0] if len(items) == 1 else None
        order.add_event(
            OrderCreated(
                order_id=order.id,
                user_id=user_id,
                product_id=only.product_id if only else None,
                quantity=only.quantity if only else None,
                items=[*items],
                total_amount=total_amount,
                timestamp=order.created_at,
            )
        )
        return order

    def confirm(self) -> None:
        if self.status is Status.CREATED:
            self.status = Status.CONFIRMED
            self.add_event(OrderConfirmed(self.id, self.user_id))

    def reject(self, reason: str) -> None:
        if self.status is Status.CREATED:
            self.status = Status.REJECTED
            self.add_event(OrderRejected(self.id, self.user_id, reason))
