"""The tables: rows, without behaviour."""

from sqlalchemy import JSON, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class RoutePlanRow(Base):
    __tablename__ = "route_plan"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    stops: Mapped[list[str]] = mapped_column(JSON)
    version: Mapped[int]
