"""The query side: a query, its handler, and nothing that could change a plan."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from examples.route_plan.projection import RoutePlans
from pillarbox import ReadDAO


@dataclass(frozen=True)
class GetRoutePlan:
    tenant_id: str
    plan_id: str


@dataclass(frozen=True)
class RoutePlanView:
    plan_id: str
    status: str
    stop_cnt: int


class RoutePlanQueryHandler:
    """Answer queries from the read model."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def handle(self, query: GetRoutePlan) -> RoutePlanView | None:
        plans = ReadDAO(self._session, RoutePlans, tenant_id=query.tenant_id)
        row = await plans.get(query.plan_id)
        if row is None:
            return None
        return RoutePlanView(row["plan_id"], row["status"], row["stop_cnt"])
