"""What the inventory service does when others say something.

pillarbox consumer run --app examples.shop.inventory_service.app.consumer:box
"""

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from examples.shop.inventory_service.app.box import box
from examples.shop.inventory_service.app.events import (
    InventoryReleased,
    InventoryReserved,
    OutOfStock,
)
from examples.shop.inventory_service.app.reserving import release, reserve
from pillarbox import ConsumerConfig, Context, DomainEvent

# Orders lock the rows of their products. One order in a transaction, its products sorted: nobody
# waits in a circle.
inventory = box.consumer(
    "inventory",
    topics=["orders.order", "payments.payment"],
    config=ConsumerConfig.from_env(batch_size=1),
    ignore_unknown=True,
)


@dataclass(frozen=True)
class Item:
    product_id: str
    quantity: int


class OrderCreated(DomainEvent):
    order_id: str
    user_id: str
    items: list[Item]
    total_amount: Decimal


class PaymentRefused(DomainEvent):
    order_id: str


@inventory.on(OrderCreated)
async def reserve_stock(event: OrderCreated, ctx: Context) -> None:
    wanted: Counter[str] = Counter()
    for item in event.items:
        wanted[item.product_id] += item.quantity
    missing = await reserve(ctx.session, event.order_id, wanted)
    if missing is None:
        answer = InventoryReserved(event.order_id, event.user_id, event.total_amount)
        await ctx.outbox.add(answer, key=event.order_id)
    else:
        await ctx.outbox.add(OutOfStock(event.order_id, missing), key=event.order_id)


@inventory.on(PaymentRefused)
async def release_stock(event: PaymentRefused, ctx: Context) -> None:
    if await release(ctx.session, event.order_id):
        await ctx.outbox.add(InventoryReleased(event.order_id), key=event.order_id)
