"""A small domain for tests: orders that raise events, mapped and plain, with and without version."""

from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import AggregateRoot, DomainEvent


class Base(DeclarativeBase):
    """The tables of the tests."""


class OrderPlaced(DomainEvent):
    order_id: str
    total: int


class OrderConfirmed(DomainEvent):
    order_id: str


class OrderCancelled(DomainEvent):
    order_id: str


class Noted(DomainEvent):
    """An event for any purpose, which no aggregate need raise."""

    aggregate_type = "note"
    text: str


class Order(AggregateRoot, Base):
    """A mapped aggregate with a version."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int] = mapped_column(CheckConstraint("total >= 0"), default=0)
    status: Mapped[str] = mapped_column(String(16), default="NEW")
    version: Mapped[int] = mapped_column(Integer)
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - the name is SQLAlchemy's

    @classmethod
    def place(cls, order_id: str, total: int = 10) -> "Order":
        order = cls(id=order_id, total=total)
        order.add_event(OrderPlaced(order_id, total))
        return order

    def confirm(self) -> None:
        self.status = "CONFIRMED"
        self.add_event(OrderConfirmed(self.id))

    def cancel(self) -> None:
        self.add_event(OrderCancelled(self.id))

    def note(self, words: str, **options: Any) -> None:
        """Raise an event without any change of a column."""
        self.add_event(Noted(words), **options)


class Basket(AggregateRoot, Base):
    """A mapped aggregate without a version, with a generated id."""

    __tablename__ = "baskets"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(64))


class Line(Base):
    """A row whose foreign key is looked at only at COMMIT."""

    __tablename__ = "lines"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    order_id: Mapped[str] = mapped_column(
        ForeignKey("orders.id", deferrable=True, initially="DEFERRED")
    )


class Plan(AggregateRoot):
    """A plain domain object, which no mapper knows."""

    def __init__(self, plan_id: str, version: int | None = None) -> None:
        self.id = plan_id
        if version is not None:
            self.version = version

    def note(self, words: str, **options: Any) -> None:
        self.add_event(Noted(words), **options)
