"""The service, and the list of orders as a page shows it."""

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from examples.tutorial.step4_read_model.orders import (
    Base,
    OrderPaid,
    OrderPlaced,
    OrderRejected,
)
from pillarbox import Change, Pillarbox, ReadModel, Update, Upsert, on


class OrderListRow(Base):
    __tablename__ = "order_list"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))


class OrderList(ReadModel, name="order-list", table=OrderListRow):
    @on(OrderPlaced)
    def placed(self, event: OrderPlaced) -> Change:
        return Upsert(event.order_id, total=event.total, status="PLACED")

    @on(OrderPaid)
    def paid(self, event: OrderPaid) -> Change:
        return Update(event.order_id, status="PAID")

    @on(OrderRejected)
    def rejected(self, event: OrderRejected) -> Change:
        return Update(event.order_id, status="REJECTED")


box = Pillarbox.from_env(service="orders")
order_list = box.read_model(OrderList)
