"""The two other services. They stand here to be run together; they are ordinary consumers."""

from sqlalchemy import String, delete
from sqlalchemy.orm import Mapped, mapped_column

from examples.tutorial.step5_saga.app import box
from examples.tutorial.step5_saga.messages import (
    PaymentRefused,
    PaymentTaken,
    ReleaseStock,
    ReserveStock,
    StockReleased,
    StockReserved,
    TakePayment,
)
from examples.tutorial.step5_saga.orders import Base
from pillarbox import Context

CREDIT = 100

inventory = box.consumer("inventory", topics=["inventory.commands"])
payments = box.consumer("payments-by-command", topics=["payments.commands"])


class Reservation(Base):
    __tablename__ = "reservations"
    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)


@inventory.on(ReserveStock)
async def reserve(event: ReserveStock, ctx: Context) -> None:
    await ctx.session.merge(Reservation(order_id=event.order_id))  # the same command may come twice
    await ctx.outbox.add(StockReserved(event.order_id))


@inventory.on(ReleaseStock)
async def release(event: ReleaseStock, ctx: Context) -> None:
    await ctx.session.execute(delete(Reservation).where(Reservation.order_id == event.order_id))
    await ctx.outbox.add(StockReleased(event.order_id))


@payments.on(TakePayment)
async def charge(event: TakePayment, ctx: Context) -> None:
    answer = PaymentTaken if event.total <= CREDIT else PaymentRefused
    await ctx.outbox.add(answer(event.order_id))
