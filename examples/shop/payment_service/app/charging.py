"""Decide about a payment, and say what became of it."""

from decimal import Decimal
from typing import Final

from examples.shop.payment_service.app.database import PaymentORM
from examples.shop.payment_service.app.events import PaymentProcessed, PaymentRefused

CREDIT_LIMIT: Final = Decimal(1_000)


def payment_of(order_id: str, user_id: str, amount: Decimal, message_id: str) -> PaymentORM:
    """Make a payment, which is refused above the limit."""
    return PaymentORM(
        order_id=order_id,
        user_id=user_id,
        amount=amount,
        status="PROCESSED" if amount <= CREDIT_LIMIT else "REFUSED",
        message_id=message_id,
    )


def outcome_of(payment: PaymentORM) -> PaymentProcessed | PaymentRefused:
    """Make the event that tells of a payment."""
    if payment.status == "PROCESSED":
        return PaymentProcessed(payment.order_id, payment.amount)
    return PaymentRefused(payment.order_id, f"it costs more than {CREDIT_LIMIT}")
