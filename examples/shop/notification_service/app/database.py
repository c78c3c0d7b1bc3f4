"""The tables of the notification service, and the stand-in for the company that sends its mails."""

from datetime import datetime

from sqlalchemy import DateTime, Identity, String, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import TenantScoped


class Base(DeclarativeBase):
    pass


class Notification(TenantScoped, Base):
    """Nothing but the inbox keeps a customer from being told twice."""

    __tablename__ = "notification"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64), index=True)
    user_id: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(32))
    order_version: Mapped[int]


class Mail(TenantScoped, Base):
    """A mail that left the house. `calls` counts how often it was asked for under the same key."""

    __tablename__ = "mail"

    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    recipient: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(200))
    calls: Mapped[int] = mapped_column(default=1)
    sent_at: Mapped[datetime] = mapped_column(
        DateTime(timezone=True), server_default=func.now(), index=True
    )
