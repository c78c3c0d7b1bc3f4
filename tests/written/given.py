"""What the short programs take for given: a reader's own rows, models and events."""

from collections.abc import Callable
from typing import ClassVar
from uuid import uuid4

from pydantic import BaseModel
from sqlalchemy import JSON, String, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import AggregateRoot, DomainEvent


class Base(DeclarativeBase):
    pass


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class PaymentRefused(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class ReserveInventory(DomainEvent):
    aggregate_type = "command"
    order_id: str


class ReleaseInventory(DomainEvent):
    aggregate_type = "command"
    order_id: str


class Charge(DomainEvent):
    aggregate_type = "command"
    order_id: str
    total: int


class InventoryReserved(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


class OutOfStock(DomainEvent):
    aggregate_type = "inventory"
    order_id: str


class NewOrder(BaseModel):
    customer_id: str
    items: list[int]


class OrderRow(Base):
    __tablename__ = "written_order_rows"
    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=lambda: f"r-{uuid4()}")
    customer_id: Mapped[str]
    items: Mapped[list[int]] = mapped_column(JSON)
    total: Mapped[int] = mapped_column(
        default=lambda row: sum(row.get_current_parameters()["items"])
    )
    status: Mapped[str] = mapped_column(default="PENDING")


class Payment(Base):
    __tablename__ = "written_payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[int]


class Order(AggregateRoot, Base):
    __tablename__ = "written_short_orders"
    created: ClassVar[Callable[[str, int], DomainEvent]]
    """The event class of the programs."""
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int]

    @classmethod
    def create(cls, customer_id: str, items: list[int]) -> "Order":
        order = cls(id=f"o-{customer_id}", total=sum(items))
        order.add_event(cls.created(order.id, order.total))
        return order


class OrderOut(BaseModel):
    id: str

    @classmethod
    def of(cls, order: Order) -> "OrderOut":
        return cls(id=order.id)


async def set_status(session: AsyncSession, order_id: str, status: str) -> None:
    await session.execute(update(OrderRow).where(OrderRow.id == order_id).values(status=status))


ORDER = {"customer_id": "1", "items": [990, 10]}
