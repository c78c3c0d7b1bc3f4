"""The service, and the process that it leads: reserve, then charge; if that fails, release."""

from datetime import timedelta

from examples.tutorial.step5_saga.messages import (
    OutOfStock,
    PaymentRefused,
    PaymentTaken,
    ReleaseStock,
    ReserveStock,
    StockReleased,
    StockReserved,
    TakePayment,
)
from examples.tutorial.step5_saga.orders import Order, OrderPlaced
from pillarbox import Context, Pillarbox, Saga, Why, step

box = Pillarbox.from_env(service="checkout")


@box.saga
class FulfilOrder(Saga, name="fulfil-order", version=1, starts_on=OrderPlaced):
    reserve = step(
        send=lambda o: ReserveStock(o.order_id),
        ok=StockReserved,
        fail=OutOfStock,
        undo=lambda o: ReleaseStock(o.order_id),
        undone=StockReleased,
        timeout=timedelta(minutes=5),
    )
    charge = step(
        send=lambda o: TakePayment(o.order_id, o.total),
        ok=PaymentTaken,
        fail=PaymentRefused,
        timeout=timedelta(minutes=5),
    )

    async def completed(self, start: OrderPlaced, ctx: Context) -> None:
        order = await ctx.session.get_one(Order, start.order_id)
        order.pay()

    async def compensated(self, start: OrderPlaced, ctx: Context, why: Why) -> None:
        order = await ctx.session.get_one(Order, start.order_id)
        order.reject(str(why))
