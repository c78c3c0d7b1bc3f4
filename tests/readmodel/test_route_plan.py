"""The example: commands on one side, the read model and its queries on the other, by tenant."""

from examples.route_plan.domain import RoutePlan
from examples.route_plan.projection import RoutePlanProjection, RoutePlans
from examples.route_plan.queries import GetRoutePlan, RoutePlanQueryHandler, RoutePlanView
from examples.route_plan.repository import RoutePlanRepository
from examples.route_plan.tables import Base
from pillarbox import Pillarbox, QueryHandler, tenant
from tests.readmodel.rig import Rig


async def test_plans_of_each_tenant_are_planned_and_queried(rig: Rig) -> None:
    environ = {"PILLARBOX_TENANCY": "required"}
    box = Pillarbox(rig.database.engine, service="routes", environ=environ)
    box.repository(RoutePlan, RoutePlanRepository)
    plans = box.read_model(RoutePlans)
    async with rig.database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)

    await plan(box, "acme", "plan-1", ["Bern", "Basel"], ["Chur", "Genf"])
    await plan(box, "globex", "plan-1", ["Wil"], [])
    await plan(box, "globex", "plan-2", ["Thun"], [])
    await plans.drain()

    assert await found(box, "acme", "plan-1") == RoutePlanView("plan-1", "PLANNED", 4)
    assert await found(box, "globex", "plan-1") == RoutePlanView("plan-1", "PLANNED", 1)
    assert await found(box, "acme", "plan-2") is None
    async with rig.database.sessions() as session:
        row = await session.get_one(RoutePlanProjection, ("globex", "plan-2"))
    assert row.created_at is not None


async def plan(
    box: Pillarbox, tenant_id: str, plan_id: str, stops: list[str], more: list[str]
) -> None:
    with tenant(tenant_id):
        async with box.unit_of_work() as uow:
            await uow.repository(RoutePlan).save(RoutePlan.plan(plan_id, stops))
            await uow.commit()
        for stop in more:
            async with box.unit_of_work() as uow:
                known = await uow.repository(RoutePlan).get(plan_id)
                assert known is not None
                known.add_stop(stop)
                await uow.repository(RoutePlan).save(known)
                await uow.commit()


async def found(box: Pillarbox, tenant_id: str, plan_id: str) -> RoutePlanView | None:
    with tenant(tenant_id):
        async with box.session_factory() as session:
            handler: QueryHandler[GetRoutePlan, RoutePlanView | None] = RoutePlanQueryHandler(
                session
            )
            return await handler.handle(GetRoutePlan(tenant_id, plan_id))
