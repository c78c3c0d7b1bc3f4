"""The middle layer: translates between a domain object and its row."""

from sqlalchemy.ext.asyncio import AsyncSession

from examples.route_plan.domain import RoutePlan
from examples.route_plan.sa_base_repo import SaBaseRepo
from examples.route_plan.tables import RoutePlanRow


class RepoAdapter:
    """Map `RoutePlan` to `RoutePlanRow` and back."""

    def __init__(self, session: AsyncSession) -> None:
        self._rows = SaBaseRepo(session, RoutePlanRow)

    async def load(self, plan_id: str) -> RoutePlan | None:
        row = await self._rows.find(plan_id)
        return None if row is None else RoutePlan(row.id, list(row.stops), row.version)

    async def store(self, plan: RoutePlan) -> None:
        if plan.version is None:
            plan.version = 1
            await self._rows.insert(RoutePlanRow(id=plan.id, stops=plan.stops, version=1))
        else:
            await self._rows.update(plan.id, plan.version, {"stops": plan.stops})
            plan.version += 1
