"""The read model: a row for each plan of each tenant, kept by its events."""

from datetime import datetime

from sqlalchemy import DateTime, String
from sqlalchemy.orm import Mapped, mapped_column

from examples.route_plan.domain import RoutePlanned, StopAdded
from examples.route_plan.tables import Base
from pillarbox import Change, Increment, MessageEnvelope, ReadModel, TenantScoped, Upsert, on


class RoutePlanProjection(TenantScoped, Base):
    __tablename__ = "route_plan_projection"
    tenant_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    plan_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    status: Mapped[str] = mapped_column(String(16))
    stop_cnt: Mapped[int] = mapped_column(server_default="0")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class RoutePlans(ReadModel, name="route-plans", table=RoutePlanProjection):
    """Plans as the list of plans shows them."""

    @on(RoutePlanned)
    def planned(self, event: RoutePlanned, about: MessageEnvelope) -> Change:
        stops = len(event.stops)
        return Upsert(event.plan_id, status="PLANNED", stop_cnt=stops, created_at=about.occurred_at)

    @on(StopAdded)
    def stop_added(self, event: StopAdded) -> Change:
        return Increment(event.plan_id, stop_cnt=1)
