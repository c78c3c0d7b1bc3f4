"""The service, and a consumer that takes payments for its orders."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from examples.tutorial.step3_consume.orders import Base, OrderPlaced
from pillarbox import Context, Pillarbox

box = Pillarbox.from_env(service="orders")
payments = box.consumer("payments", topics=["orders.order"], ignore_unknown=True)


class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)  # nothing here keeps a second one out
    order_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[int]


@payments.on(OrderPlaced)
async def charge(event: OrderPlaced, ctx: Context) -> None:
    ctx.session.add(Payment(order_id=event.order_id, amount=event.total))
