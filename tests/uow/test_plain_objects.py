"""Plain domain objects behind a repository: the layering of the example, on every database."""

import pytest
from sqlalchemy import select
from sqlalchemy.orm.exc import StaleDataError

from examples.route_plan.domain import RoutePlan
from examples.route_plan.repository import RoutePlanRepository
from examples.route_plan.tables import Base, RoutePlanRow
from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import Tenancy
from tests.support.database import Database
from tests.support.orders import Plan

SETTINGS = CaptureSettings(service="routes", tenancy=Tenancy(required=True))


def unit_of_work(database: Database, tenant_id: str = "acme") -> SQLAlchemyUnitOfWork:
    return SQLAlchemyUnitOfWork(
        database.sessions,
        tenant_id=tenant_id,
        repositories={RoutePlan: RoutePlanRepository},
        settings=SETTINGS,
    )


@pytest.fixture(autouse=True)
async def tables(database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)


async def plan_a_route(database: Database) -> None:
    async with unit_of_work(database) as uow:
        await uow.repository(RoutePlan).save(RoutePlan.plan("r-1", ["a", "b"]))
        await uow.commit()


async def rows(database: Database) -> dict[tuple[str, str], tuple[list[str], int]]:
    """Read the plans of all tenants, in a session that knows of none."""
    async with database.sessions() as session:
        found = await session.scalars(select(RoutePlanRow))
        return {(row.tenant_id, row.id): (row.stops, row.version) for row in found}


async def test_a_plan_and_its_events_are_saved_and_changed_through_the_layers(
    database: Database,
) -> None:
    await plan_a_route(database)
    async with unit_of_work(database) as uow:
        plan = await uow.repository(RoutePlan).get("r-1")
        assert plan is not None
        plan.add_stop("c")
        plan.add_stop("d")
        await uow.repository(RoutePlan).save(plan)
        await uow.commit()

    records = await database.events()
    assert [
        (r.event_type, r.topic, r.key, r.aggregate_version, r.event_number) for r in records
    ] == [
        ("RoutePlanned", "routes.routeplan", "r-1", 1, 1),
        ("StopAdded", "routes.routeplan", "r-1", 2, 1),
        ("StopAdded", "routes.routeplan", "r-1", 2, 2),
    ]
    assert await rows(database) == {("acme", "r-1"): (["a", "b", "c", "d"], 2)}


async def test_another_tenant_neither_finds_nor_changes_a_plan_of_the_same_id(
    database: Database,
) -> None:
    await plan_a_route(database)

    async with unit_of_work(database, "globex") as uow:
        unseen = await uow.repository(RoutePlan).get("r-1")
        await uow.repository(RoutePlan).save(RoutePlan.plan("r-1", ["x"]))
        await uow.commit()
    async with unit_of_work(database, "globex") as uow:
        own = await uow.repository(RoutePlan).get("r-1")
        assert own is not None
        own.add_stop("y")
        await uow.repository(RoutePlan).save(own)
        await uow.commit()

    assert unseen is None
    assert await rows(database) == {
        ("acme", "r-1"): (["a", "b"], 1),
        ("globex", "r-1"): (["x", "y"], 2),
    }


async def test_a_plan_that_was_found_and_raised_events_is_tracked_without_saving(
    database: Database,
) -> None:
    await plan_a_route(database)

    async with unit_of_work(database) as uow:
        plan = await uow.repository(RoutePlan).get("r-1")
        assert plan is not None
        plan.add_stop("c")
        await uow.commit()

    assert await database.event_types() == ["RoutePlanned", "StopAdded"]


async def test_of_two_writers_of_a_version_one_is_refused_with_its_events(
    database: Database,
) -> None:
    await plan_a_route(database)
    async with unit_of_work(database) as uow:
        stale = await uow.repository(RoutePlan).get("r-1")
    assert stale is not None
    async with unit_of_work(database) as uow:
        plan = await uow.repository(RoutePlan).get("r-1")
        assert plan is not None
        plan.add_stop("first")
        await uow.repository(RoutePlan).save(plan)
        await uow.commit()

    async with unit_of_work(database) as uow:
        stale.add_stop("second")
        with pytest.raises(StaleDataError):
            await uow.repository(RoutePlan).save(stale)

    payloads = [record.payload for record in await database.events()]
    assert payloads[1:] == [{"plan_id": "r-1", "stop": "first"}]


async def test_an_object_without_a_version_is_recorded_with_a_number_alone(
    database: Database,
) -> None:
    plan = Plan("p-1")
    plan.note("one")
    plan.note("two")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    records = await database.events()
    assert [(r.aggregate_version, r.event_number) for r in records] == [(None, 1), (None, 2)]


async def test_an_object_with_a_version_of_its_own_is_recorded_with_it(database: Database) -> None:
    plan = Plan("p-1", version=7)
    plan.note("one")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    [record] = await database.events()
    assert (record.aggregate_version, record.event_number) == (7, 1)


async def test_an_object_that_raises_after_being_saved_is_recorded(database: Database) -> None:
    plan = RoutePlan.plan("r-1", ["a"])

    async with unit_of_work(database) as uow:
        await uow.repository(RoutePlan).save(plan)
        plan.add_stop("b")
        await uow.commit()

    assert await database.event_types() == ["RoutePlanned", "StopAdded"]
