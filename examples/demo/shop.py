"""A shop in one page: an aggregate, its events, and what a customer does."""

import random
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import AggregateRoot, DomainEvent, SQLAlchemyUnitOfWork


class Base(DeclarativeBase):
    pass


@dataclass(frozen=True)
class OrderPlaced(DomainEvent):
    order_id: int
    customer: str
    total: Decimal


@dataclass(frozen=True)
class OrderPaid(DomainEvent):
    order_id: int


class PaymentRefused(Exception):
    pass


class Order(AggregateRoot, Base):
    __tablename__ = "demo_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(String(64))
    total: Mapped[Decimal]
    status: Mapped[str] = mapped_column(String(16), default="PLACED")
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - SQLAlchemy reads it

    def place(self) -> None:
        self.add_event(OrderPlaced(self.id, self.customer, self.total))

    def pay(self) -> None:
        self.status = "PAID"
        self.add_event(OrderPaid(self.id))


async def place_order(uow: SQLAlchemyUnitOfWork, chance: random.Random) -> int:
    """Place an order and pay it, in one transaction; now and then the payment is refused."""
    order = Order(
        customer=f"customer-{chance.randint(1, 50)}", total=Decimal(chance.randint(1, 999))
    )
    await uow.repository(Order).save(order)
    await uow.session.flush()  # the database makes the id that the event carries
    order.place()
    if chance.randrange(10) == 0:
        raise PaymentRefused
    order.pay()
    await uow.commit()
    return order.id
