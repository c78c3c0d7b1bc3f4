"""What the inventory service tells the others, on the topic `inventory.reservation`."""

from decimal import Decimal

from pillarbox import DomainEvent


class InventoryReserved(DomainEvent):
    aggregate_type = "reservation"
    order_id: str
    user_id: str
    total_amount: Decimal


class OutOfStock(DomainEvent):
    aggregate_type = "reservation"
    order_id: str
    product_id: str


class InventoryReleased(DomainEvent):
    aggregate_type = "reservation"
    order_id: str
