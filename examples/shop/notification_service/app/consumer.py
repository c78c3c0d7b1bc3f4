"""Tell customers what became of their orders.

pillarbox consumer run --app examples.shop.notification_service.app.consumer:box
"""

from typing import Final

from examples.shop.notification_service.app import mail_provider
from examples.shop.notification_service.app.box import box
from examples.shop.notification_service.app.database import Notification
from pillarbox import Context, DomainEvent

SUBJECTS: Final = {
    "OrderConfirmed": "Your order is on its way",
    "OrderRejected": "Your order could not be accepted",
}

notifications = box.consumer("notifications", topics=["orders.order"])


class OrderNews(DomainEvent):
    """What this service needs of every event of an order."""

    order_id: str
    user_id: str


@notifications.task("mail")
async def send_mail(tenant_id: str, recipient: str, subject: str, key: str) -> None:
    await mail_provider.send(tenant_id, recipient, subject, idempotency_key=key)


@notifications.on("OrderCreated")
async def welcome(event: OrderNews, ctx: Context) -> None:
    """Show it in the customer's account; that needs no mail."""
    ctx.session.add(_notification(event, ctx))


@notifications.on("OrderConfirmed")
@notifications.on("OrderRejected")
async def tell(event: OrderNews, ctx: Context) -> None:
    """Note it in this transaction; the mail leaves after the commit, under a key that stays."""
    ctx.session.add(_notification(event, ctx))
    ctx.after_commit(
        send_mail,
        tenant_id=ctx.tenant_id,
        recipient=event.user_id,
        subject=SUBJECTS[ctx.envelope.event_type],
        key=ctx.effect_key("mail"),
    )


def _notification(event: OrderNews, ctx: Context) -> Notification:
    return Notification(
        order_id=event.order_id,
        user_id=event.user_id,
        kind=ctx.envelope.event_type,
        order_version=ctx.envelope.aggregate_version,
    )
