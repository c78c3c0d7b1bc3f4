"""What the order service tells the others, on the topic `orders.order`."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pillarbox import DomainEvent


@dataclass(frozen=True)
class Item:
    """So many of one product."""

    product_id: str
    quantity: int


class OrderCreated(DomainEvent):
    """An order waits for stock and money; `product_id` and `quantity` if it has one item."""

    order_id: str
    user_id: str
    product_id: str | None
    quantity: int | None
    items: list[Item]
    total_amount: Decimal
    timestamp: datetime


class OrderConfirmed(DomainEvent):
    """Everything is reserved and paid."""

    order_id: str
    user_id: str


class OrderRejected(DomainEvent):
    """Nothing will come of it."""

    order_id: str
    user_id: str
    reason: str
