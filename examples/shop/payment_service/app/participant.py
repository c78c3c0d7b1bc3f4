"""The payment service as a participant of the saga.

pillarbox consumer run --app examples.shop.payment_service.app.participant:box
"""

from decimal import Decimal

from sqlalchemy import select

from examples.shop.payment_service.app.box import box
from examples.shop.payment_service.app.charging import outcome_of, payment_of
from examples.shop.payment_service.app.database import PaymentORM
from pillarbox import Context, DomainEvent

payments = box.consumer("payment-commands", topics=["payments.commands"])


class Charge(DomainEvent):
    order_id: str
    user_id: str
    total_amount: Decimal


@payments.on(Charge)
async def charge(command: Charge, ctx: Context) -> None:
    """Charge once for an order: a saga that tries again sends the command in a new message."""
    known = select(PaymentORM).where(PaymentORM.order_id == command.order_id)
    payment = await ctx.session.scalar(known)
    if payment is None:
        payment = payment_of(
            command.order_id, command.user_id, command.total_amount, ctx.envelope.event_id
        )
        ctx.session.add(payment)
    await ctx.outbox.add(outcome_of(payment), key=command.order_id)
