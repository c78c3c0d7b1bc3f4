"""The upper layer: what the application says. It fits `SQLAlchemyUnitOfWork(repositories=…)`."""

from sqlalchemy.ext.asyncio import AsyncSession

from examples.route_plan.domain import RoutePlan
from examples.route_plan.repo_adapter import RepoAdapter


class RoutePlanRepository:
    """Save and find route plans inside a unit of work."""

    def __init__(self, session: AsyncSession) -> None:
        self._adapter = RepoAdapter(session)

    async def save(self, aggregate: RoutePlan) -> None:
        await self._adapter.store(aggregate)

    async def get(self, aggregate_id: str) -> RoutePlan | None:
        return await self._adapter.load(aggregate_id)
