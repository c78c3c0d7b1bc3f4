from dataclasses import dataclass

import pytest

from pillarbox import DomainEvent, JsonText, NewEvent, SqlAlchemyOutbox, SQLAlchemyUnitOfWork
from pillarbox.errors import InvalidTopic, TopicUnknown
from pillarbox.event.rules import NATS
from pillarbox.outbox.routing import (
    AggregateTopics,
    ContextTopics,
    Origin,
    RoutingPolicy,
    TenantTopics,
)
from pillarbox.outbox.row import row_of
from pillarbox.outbox.settings import CaptureSettings
from tests.support.database import Database, on
from tests.support.orders import Order

ORIGIN = Origin(
    service="Orders", tenant_id="acme", aggregate_type="Order", event_type="OrderCreated"
)
NO_AGGREGATE = Origin(
    service="Orders", tenant_id="acme", aggregate_type=None, event_type="OrderCreated"
)

on_one_database = on("postgres18+psycopg")


class OrderCreated(DomainEvent):
    aggregate_type = "Order"
    order_id: str


class Pinned(DomainEvent):
    aggregate_type = "Order"
    topic = "pinned.topic"
    order_id: str


class Loose(DomainEvent):
    order_id: str


@dataclass(frozen=True)
class ByEventType:
    """A policy of the user's own."""

    def topic(self, origin: Origin) -> str | None:
        return f"{origin.service}.{origin.event_type}".lower()


@pytest.mark.parametrize(
    ("policy", "topic"),
    [
        (ContextTopics(), "orders.order"),
        (AggregateTopics(), "order-events"),
        (AggregateTopics(suffix=".log"), "order.log"),
        (TenantTopics(), "tenant-acme"),
        (TenantTopics(prefix="t."), "t.acme"),
        (ByEventType(), "orders.ordercreated"),
    ],
)
def test_a_policy_names_the_topic_of_an_aggregates_event(policy: RoutingPolicy, topic: str) -> None:
    assert policy.topic(ORIGIN) == topic


@pytest.mark.parametrize(
    ("policy", "topic"),
    [(ContextTopics(), None), (AggregateTopics(), None), (TenantTopics(), "tenant-acme")],
)
def test_without_an_aggregate_only_the_tenants_topic_is_known(
    policy: RoutingPolicy, topic: str | None
) -> None:
    assert policy.topic(NO_AGGREGATE) == topic


def test_the_default_topic_is_the_service_and_the_aggregate_in_lower_case() -> None:
    row = row_of(NewEvent(event=OrderCreated("o-1")), CaptureSettings(service="Shop"))

    assert row.topic == "shop.order"


def test_a_topic_on_the_class_wins_over_the_policy() -> None:
    row = row_of(NewEvent(event=Pinned("o-1")), CaptureSettings(routing=AggregateTopics()))

    assert row.topic == "pinned.topic"


def test_a_topic_in_the_call_wins_over_the_class() -> None:
    row = row_of(NewEvent(event=Pinned("o-1"), topic="called.topic"), CaptureSettings())

    assert row.topic == "called.topic"


def test_an_aggregate_type_in_the_call_serves_an_event_that_names_none() -> None:
    row = row_of(NewEvent(event=Loose("o-1"), aggregate_type="Parcel"), CaptureSettings())

    assert row.topic == "default.parcel"


def test_an_event_that_nobody_routes_is_refused_with_what_to_set() -> None:
    with pytest.raises(TopicUnknown, match="set aggregate_type on its class, or pass"):
        row_of(NewEvent(event=Loose("o-1")), CaptureSettings())


def test_a_routed_topic_is_held_to_the_rules_of_the_bus() -> None:
    settings = CaptureSettings(service="$orders", rules=NATS)

    with pytest.raises(InvalidTopic, match="must not start with"):
        row_of(NewEvent(event=OrderCreated("o-1")), settings)


@pytest.mark.parametrize(
    ("new", "key"),
    [
        (NewEvent(topic="t", payload={}, key="k-1", aggregate_id="a-1"), "k-1"),
        (NewEvent(topic="t", payload={}, aggregate_id="a-1"), "a-1"),
        (NewEvent(topic="t", payload={}, key=42), "42"),
    ],
)
def test_the_key_is_the_one_in_the_call_else_the_aggregate_id(new: NewEvent, key: str) -> None:
    row = row_of(new, CaptureSettings())

    assert row.key == key
    assert row.key_lock is not None


def test_without_key_and_aggregate_an_event_is_its_own_key_and_unordered() -> None:
    row = row_of(NewEvent(topic="t", payload=JsonText("{}")), CaptureSettings())

    assert row.key == str(row.id)
    assert row.key_lock is None


@on_one_database
async def test_topic_and_key_are_stored_with_the_row(database: Database) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions, service="orders") as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    async with database.sessions() as session:
        settings = CaptureSettings(routing=TenantTopics())
        await SqlAlchemyOutbox(session, settings=settings).add(OrderCreated("o-2"), key="o-2")
        await session.commit()

    records = await database.events()
    assert [(record.topic, record.key) for record in records] == [
        ("orders.order", "o-1"),
        ("tenant-default", "o-2"),
    ]
