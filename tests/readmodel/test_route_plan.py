"""The example: commands on one side, the read model and its queries on the other, by tenant."""

from examples.route_plan.domain import RoutePlan
from examples.route_plan.projection import RoutePlanProjection, RoutePlans
from examples.route_plan.queries import GetRoutePlan, RoutePlanQueryHandler, RoutePlanView
from examples.route_plan.repository import RoutePlanRepository
from examples.route_plan.tables import Base
from pillarbox import Pillarbox, QueryHandler, SQLAlchemyUnitOfWork
from tests.readmodel.rig import Rig


async def test_plans_of_each_tenant_are_planned_and_queried(rig: Rig) -> None:
    box = Pillarbox(rig.database.engine, service="routes", environ={})
    plans = box.read_model(RoutePlans)
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)

    await plan(box, "acme", "acme-1", ["Bern", "Basel"], ["Chur", "Genf"])
    await plan(box, "globex", "globex-1", ["Wil"], [])
    await plans.drain()

    async with box.session_factory() as session:
        handler: QueryHandler[GetRoutePlan, RoutePlanView | None] = RoutePlanQueryHandler(session)
        found = await handler.handle(GetRoutePlan("acme", "acme-1"))
        other = await handler.handle(GetRoutePlan("globex", "acme-1"))
        row = await session.get(RoutePlanProjection, ("globex", "globex-1"))
    assert found == RoutePlanView("acme-1", "PLANNED", 4)
    assert other is None
    assert row is not None
    assert (row.stop_cnt, row.created_at is not None) == (1, True)


async def plan(
    box: Pillarbox, tenant_id: str, plan_id: str, stops: list[str], more: list[str]
) -> None:
    repositories = {RoutePlan: RoutePlanRepository}
    async with SQLAlchemyUnitOfWork(
        box.session_factory, tenant_id=tenant_id, repositories=repositories
    ) as uow:
        await uow.repository(RoutePlan).save(RoutePlan.plan(plan_id, stops))
        await uow.commit()
    for stop in more:
        async with SQLAlchemyUnitOfWork(
            box.session_factory, tenant_id=tenant_id, repositories=repositories
        ) as uow:
            found = await uow.repository(RoutePlan).get(plan_id)
            assert found is not None
            found.add_stop(stop)
            await uow.repository(RoutePlan).save(found)
            await uow.commit()
