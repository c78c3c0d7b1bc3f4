"""The tables of the payment service."""

from decimal import Decimal

from sqlalchemy import Identity, Numeric, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import TenantScoped


class Base(DeclarativeBase):
    pass


class PaymentORM(TenantScoped, Base):
    """Nothing but the inbox keeps an order from being charged twice."""

    __tablename__ = "payment"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    user_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[Decimal] = mapped_column(Numeric(12, 2))
    status: Mapped[str] = mapped_column(String(16))
    message_id: Mapped[str] = mapped_column(String(255))
