"""The read model of orders: a row for each, in the form in which it is asked for."""

from decimal import Decimal

from sqlalchemy import Numeric, String
from sqlalchemy.orm import Mapped, mapped_column

from examples.shop.order_service.app.db import Base
from examples.shop.order_service.app.events import OrderConfirmed, OrderCreated, OrderRejected
from pillarbox import Change, ReadModel, TenantScoped, Update, Upsert, on


class OrderView(TenantScoped, Base):
    __tablename__ = "order_view"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = mapped_column(String(64))
    total_amount: Mapped[Decimal] = mapped_column(Numeric(12, 2))
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(200))


class Orders(ReadModel, name="order-view", table=OrderView):
    @on(OrderCreated)
    def created(self, event: OrderCreated) -> Change:
        return Upsert(
            event.order_id,
            user_id=event.user_id,
            total_amount=event.total_amount,
            status="CREATED",
        )

    @on(OrderConfirmed)
    def confirmed(self, event: OrderConfirmed) -> Change:
        return Update(event.order_id, status="CONFIRMED")

    @on(OrderRejected)
    def rejected(self, event: OrderRejected) -> Change:
        return Update(event.order_id, status="REJECTED", reason=event.reason)
