"""What the payment service does when stock is reserved.

pillarbox consumer run --app examples.shop.payment_service.app.consumer:box
"""

from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.payment_service.app.box import box
from examples.shop.payment_service.app.charging import outcome_of, payment_of
from examples.shop.payment_service.app.database import PaymentORM
from pillarbox import Context, DomainEvent

payments = box.consumer("payments", topics=["inventory.reservation"], ignore_unknown=True)


class InventoryReserved(DomainEvent):
    order_id: str
    user_id: str
    total_amount: Decimal


@payments.on(InventoryReserved)
async def charge(event: InventoryReserved, ctx: Context) -> None:
    payment = _process_payment_with_inbox(event, ctx.envelope.event_id, ctx.session)
    await ctx.outbox.add(outcome_of(payment), key=event.order_id)


def _process_payment_with_inbox(
    event: InventoryReserved, message_id: str, session: AsyncSession
) -> PaymentORM:
    """Add the payment to the transaction that holds the inbox's row of this message."""
    payment = payment_of(event.order_id, event.user_id, event.total_amount, message_id)
    session.add(payment)
    return payment
