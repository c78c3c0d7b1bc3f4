"""What the payment service tells the others, on the topic `payments.payment`."""

from decimal import Decimal

from pillarbox import DomainEvent


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str
    amount: Decimal


class PaymentRefused(DomainEvent):
    aggregate_type = "payment"
    order_id: str
    reason: str
