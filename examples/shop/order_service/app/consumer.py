"""What the order service does when others say what became of an order.

pillarbox consumer run --app examples.shop.order_service.app.consumer:box
"""

from examples.shop.order_service.app.box import box
from examples.shop.order_service.app.commands import (
    ConfirmOrder,
    OrderCommandHandler,
    RejectOrder,
)
from pillarbox import Context, DomainEvent

answers = box.consumer(
    "order-answers", topics=["inventory.reservation", "payments.payment"], ignore_unknown=True
)


class PaymentProcessed(DomainEvent):
    order_id: str


class PaymentRefused(DomainEvent):
    order_id: str
    reason: str


class OutOfStock(DomainEvent):
    order_id: str
    product_id: str


@answers.on(PaymentProcessed)
async def paid(event: PaymentProcessed, ctx: Context) -> None:
    del ctx  # the unit of work joins the transaction that the message is handled in
    async with box.unit_of_work() as uow:
        await OrderCommandHandler(uow).confirm(ConfirmOrder(event.order_id))


@answers.on(PaymentRefused)
async def not_paid(event: PaymentRefused, ctx: Context) -> None:
    del ctx
    async with box.unit_of_work() as uow:
        await OrderCommandHandler(uow).reject(RejectOrder(event.order_id, event.reason))


@answers.on(OutOfStock)
async def not_there(event: OutOfStock, ctx: Context) -> None:
    del ctx
    reason = f"{event.product_id} is sold out"
    async with box.unit_of_work() as uow:
        await OrderCommandHandler(uow).reject(RejectOrder(event.order_id, reason))
