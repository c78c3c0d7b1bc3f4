"""The tables of the inventory service."""

from sqlalchemy import CheckConstraint, Identity, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import TenantScoped


class Base(DeclarativeBase):
    pass


class Stock(TenantScoped, Base):
    __tablename__ = "stock"
    __table_args__ = (CheckConstraint("available >= 0", name="stock_is_never_oversold"),)

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    product_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    available: Mapped[int]


class Reservation(TenantScoped, Base):
    """Nothing but the inbox keeps an order from being reserved twice."""

    __tablename__ = "reservation"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    product_id: Mapped[str] = mapped_column(String(64))
    quantity: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), default="RESERVED")
