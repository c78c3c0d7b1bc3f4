"""What the services agreed on: commands, and the events that answer them."""

from pillarbox import DomainEvent


class ReserveStock(DomainEvent):
    topic = "inventory.commands"
    order_id: str


class ReleaseStock(DomainEvent):
    topic = "inventory.commands"
    order_id: str


class StockReserved(DomainEvent):
    topic = "inventory.stock"
    order_id: str


class StockReleased(DomainEvent):
    topic = "inventory.stock"
    order_id: str


class OutOfStock(DomainEvent):
    topic = "inventory.stock"
    order_id: str


class TakePayment(DomainEvent):
    topic = "payments.commands"
    order_id: str
    total: int


class PaymentTaken(DomainEvent):
    topic = "payments.payment"
    order_id: str


class PaymentRefused(DomainEvent):
    topic = "payments.payment"
    order_id: str


TOPICS = [
    "checkout.order",
    "inventory.commands",
    "inventory.stock",
    "payments.commands",
    "payments.payment",
]
