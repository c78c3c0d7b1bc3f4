"""The tables: rows, without behaviour. Each belongs to a tenant: `PILLARBOX_TENANCY=required`."""

from sqlalchemy import JSON, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import TenantScoped


class Base(DeclarativeBase):
    pass


class RoutePlanRow(TenantScoped, Base):
    __tablename__ = "route_plan"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    stops: Mapped[list[str]] = mapped_column(JSON)
    version: Mapped[int]
