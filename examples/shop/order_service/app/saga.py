"""The same process led by a saga: it asks the others, step by step, and undoes what it must.

pillarbox consumer run --app examples.shop.order_service.app.saga:box

It takes the place of `consumer`; the other services then run their `participant`.
"""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from examples.shop.order_service.app.box import box
from examples.shop.order_service.app.commands import (
    ConfirmOrder,
    OrderCommandHandler,
    RejectOrder,
)
from examples.shop.order_service.app.events import Item, OrderCreated
from pillarbox import Context, DomainEvent, Saga, step


class ReserveInventory(DomainEvent):
    topic = "inventory.commands"
    order_id: str
    user_id: str
    items: list[Item]
    total_amount: Decimal


class ReleaseInventory(DomainEvent):
    topic = "inventory.commands"
    order_id: str


class Charge(DomainEvent):
    topic = "payments.commands"
    order_id: str
    user_id: str
    total_amount: Decimal


class InventoryReserved(DomainEvent):
    order_id: str


class InventoryReleased(DomainEvent):
    order_id: str


class OutOfStock(DomainEvent):
    order_id: str
    product_id: str


class PaymentProcessed(DomainEvent):
    order_id: str


class PaymentRefused(DomainEvent):
    order_id: str
    reason: str


@box.saga
class PlaceOrder(
    Saga,
    name="place-order",
    version=1,
    starts_on=OrderCreated,
    topics=["orders.order", "inventory.reservation", "payments.payment"],
):
    reserve = step(
        send=lambda o: ReserveInventory(o.order_id, o.user_id, o.items, o.total_amount),
        ok=InventoryReserved,
        fail=OutOfStock,
        undo=lambda o: ReleaseInventory(o.order_id),
        undone=InventoryReleased,
        timeout=timedelta(minutes=5),
    )
    charge = step(
        send=lambda o: Charge(o.order_id, o.user_id, o.total_amount),
        ok=PaymentProcessed,
        fail=PaymentRefused,
        # Without an undo there is no timeout either: a charge that was given up while the payment
        # service was away would still be waiting for it, and take money for a rejected order.
    )

    async def completed(self, start: OrderCreated, ctx: Context) -> None:
        del ctx  # the unit of work joins the transaction that ends the saga
        async with box.unit_of_work() as uow:
            await OrderCommandHandler(uow).confirm(ConfirmOrder(start.order_id))

    async def compensated(self, start: OrderCreated, ctx: Context, why: Any) -> None:
        del ctx
        async with box.unit_of_work() as uow:
            await OrderCommandHandler(uow).reject(RejectOrder(start.order_id, str(why)))
