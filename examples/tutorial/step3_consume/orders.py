"""An order that raises its events; it knows neither the outbox nor the broker."""

from sqlalchemy import CheckConstraint, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import AggregateRoot, DomainEvent, Pillarbox


class Base(DeclarativeBase):
    pass


class OrderPlaced(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: int


class OrderPaid(DomainEvent):
    aggregate_type = "order"
    order_id: str


class OrderRejected(DomainEvent):
    aggregate_type = "order"
    order_id: str
    reason: str


class Order(AggregateRoot, Base):
    __tablename__ = "orders"
    __table_args__ = (CheckConstraint("total > 0"),)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int]
    status: Mapped[str] = mapped_column(String(16), default="PLACED")
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - the name is SQLAlchemy's

    @classmethod
    def place(cls, order_id: str, total: int) -> "Order":
        order = cls(id=order_id, total=total)
        order.add_event(OrderPlaced(order_id, total))
        return order

    def pay(self) -> None:
        self.status = "PAID"
        self.add_event(OrderPaid(self.id))

    def reject(self, reason: str) -> None:
        self.status = "REJECTED"
        self.add_event(OrderRejected(self.id, reason))


async def place_order(box: Pillarbox, order_id: str, total: int) -> None:
    async with box.unit_of_work() as uow:
        await uow.repository(Order).save(Order.place(order_id, total))
        await uow.commit()  # the order and its event, one transaction


async def pay_order(box: Pillarbox, order_id: str) -> None:
    async with box.unit_of_work() as uow:
        order = await uow.session.get_one(Order, order_id)
        order.pay()
        await uow.commit()


async def create_tables(box: Pillarbox) -> None:
    async with box.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
