"""The inventory service as a participant of the saga: it does what it is asked to, and says so.

pillarbox consumer run --app examples.shop.inventory_service.app.participant:box
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
from examples.shop.inventory_service.app.reserving import is_reserved, release, reserve
from pillarbox import ConsumerConfig, Context, DomainEvent

stock = box.consumer(
    "inventory-commands",
    topics=["inventory.commands"],
    config=ConsumerConfig.from_env(batch_size=1),  # as in `consumer`: nobody waits in a circle
)


@dataclass(frozen=True)
class Item:
    product_id: str
    quantity: int


class ReserveInventory(DomainEvent):
    order_id: str
    user_id: str
    items: list[Item]
    total_amount: Decimal


class ReleaseInventory(DomainEvent):
    order_id: str


@stock.on(ReserveInventory)
async def reserve_stock(command: ReserveInventory, ctx: Context) -> None:
    """Reserve once for an order: a saga that tries again sends the command in a new message."""
    wanted: Counter[str] = Counter()
    for item in command.items:
        wanted[item.product_id] += item.quantity
    missing = None
    if not await is_reserved(ctx.session, command.order_id):
        missing = await reserve(ctx.session, command.order_id, wanted)
    reply = (
        InventoryReserved(command.order_id, command.user_id, command.total_amount)
        if missing is None
        else OutOfStock(command.order_id, missing)
    )
    await ctx.outbox.add(reply, key=command.order_id)


@stock.on(ReleaseInventory)
async def release_stock(command: ReleaseInventory, ctx: Context) -> None:
    await release(ctx.session, command.order_id)
    await ctx.outbox.add(InventoryReleased(command.order_id), key=command.order_id)
