"""An event carries the options and the context of the place where it was raised."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from pillarbox import SQLAlchemyUnitOfWork, correlation, tenant, trace
from pillarbox.errors import TenantMismatch, TenantRequired
from pillarbox.event.shard import place_of
from pillarbox.outbox.routing import AggregateTopics, TenantTopics
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on
from tests.support.orders import Order, Plan

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LATER = datetime(2090, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2)))


async def test_the_options_of_an_event_are_stored(database: Database) -> None:
    plan = Plan("p-1")
    plan.note(
        "all of them",
        key="other-key",
        topic="other.topic",
        routing_key="eu.west",
        headers={"x-shop": "7"},
        deliver_at=LATER,
        expires_at=LATER + timedelta(days=1),
    )

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    [record] = await database.events()
    assert (record.key, record.topic, record.routing_key) == ("other-key", "other.topic", "eu.west")
    assert (record.aggregate_type, record.aggregate_id) == ("Plan", "p-1")
    assert record.shard_hash == place_of("default", "other-key").shard_hash
    assert record.event_metadata == {"x-shop": "7"}
    assert (record.deliver_at, record.expires_at) == (LATER, LATER + timedelta(days=1))


async def test_an_event_for_later_is_set_aside_and_one_of_the_past_is_not(
    database: Database,
) -> None:
    plan = Plan("p-1")
    plan.note("later", deliver_at=LATER)
    plan.note("past", deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
    plan.note("now")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    assert [record.set_aside for record in await database.events()] == ["later", None, None]


async def test_whole_numbers_and_uuids_serve_as_keys(database: Database) -> None:
    plan, number = Plan("p-1"), UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    plan.note("by number", key=42)
    plan.note("by uuid", key=number)

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        await uow.commit()

    assert [record.key for record in await database.events()] == ["42", str(number)]


async def test_correlation_and_trace_are_those_of_the_raising_not_of_the_commit(
    database: Database,
) -> None:
    plan = Plan("p-1")

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        uow.track(plan)
        with correlation("c-1", causation_id="m-1"), trace(TRACE, "vendor=1"):
            plan.note("inside")
            await uow.outbox.add(topic="manual", payload={"text": "inside"})
        plan.note("outside")
        with correlation("c-2"):
            await uow.commit()

    carried = {
        "correlationid": "c-1",
        "causationid": "m-1",
        "traceparent": TRACE,
        "tracestate": "vendor=1",
    }
    metadata = [record.event_metadata for record in await database.events()]
    assert metadata == [carried, carried, {}]


async def test_the_tenant_of_the_context_stands_in_the_row(database: Database) -> None:
    with tenant("acme"):
        async with SQLAlchemyUnitOfWork(database.sessions) as uow:
            uow.session.add(Order.place("o-1"))
            await uow.outbox.add(topic="manual", payload={})
            await uow.commit()

    records = await database.events()
    assert {record.tenant_id for record in records} == {"acme"}
    assert records[0].shard_hash == place_of("acme", "o-1").shard_hash


async def test_the_tenant_of_the_argument_stands_in_the_row(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions, tenant_id="acme") as uow:
        uow.session.add(Order.place("o-1"))
        await uow.outbox.add(topic="manual", payload={})
        await uow.commit()

    assert {record.tenant_id for record in await database.events()} == {"acme"}


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_another_tenant_than_the_context_is_refused(database: Database) -> None:
    with tenant("acme"):
        async with SQLAlchemyUnitOfWork(database.sessions, tenant_id="other") as uow:
            uow.session.add(Order.place("o-1"))
            with pytest.raises(TenantMismatch):
                await uow.commit()

    assert await database.count() == 0
    assert await database.order_ids() == []


@on("postgres18+asyncpg", "sqlite+aiosqlite")
async def test_where_a_tenant_is_required_an_event_without_one_is_refused(
    database: Database,
) -> None:
    settings = CaptureSettings(tenancy=Tenancy(required=True))

    async with SQLAlchemyUnitOfWork(database.sessions, settings=settings) as uow:
        uow.session.add(Order.place("o-1"))
        with pytest.raises(TenantRequired):
            await uow.commit()

    assert await database.count() == 0


@on("postgres18+asyncpg", "sqlite+aiosqlite")
@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        (CaptureSettings(service="Shop"), "shop.order"),
        (CaptureSettings(routing=TenantTopics()), "tenant-acme"),
        (CaptureSettings(routing=AggregateTopics()), "order-events"),
    ],
)
async def test_the_routing_policy_decides_the_topic_at_capture(
    database: Database, settings: CaptureSettings, topic: str
) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions, tenant_id="acme", settings=settings) as uow:
        uow.session.add(Order.place("o-1"))
        await uow.commit()

    assert [record.topic for record in await database.events()] == [topic]


async def test_the_service_of_the_argument_wins(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLARBOX_SERVICE", "ambient")

    for service in (None, "named"):
        async with SQLAlchemyUnitOfWork(database.sessions, service=service) as uow:
            uow.session.add(Order.place(f"o-{service}"))
            await uow.commit()

    assert [record.topic for record in await database.events()] == ["ambient.order", "named.order"]
