"""An order that belongs to a tenant."""

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import DomainEvent, Pillarbox, TenantScoped


class Base(DeclarativeBase):
    pass


class OrderPlaced(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: int


class Order(TenantScoped, Base):
    __tablename__ = "tenant_orders"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)  # first in every key
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[int]


async def place_order(box: Pillarbox, order_id: str, total: int) -> None:
    async with box.unit_of_work() as uow:
        uow.session.add(Order(id=order_id, total=total))
        await uow.outbox.add(OrderPlaced(order_id, total), key=order_id)
        await uow.commit()
