"""The usage of the documents runs as it is written, letter by letter, with Pulsar as its bus."""

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pulsar
import pytest
from sqlalchemy import String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import pillarbox
from pillarbox import AggregateRoot, DomainEvent, InboxRecord, OutboxProjector
from tests.support.brokers import LinedPulsar
from tests.support.database import Database, on
from tests.support.waiting import until
from tests.written.running import run, text


class Base(DeclarativeBase):
    pass


class OrderCreated(DomainEvent):
    order_id: str
    items: list[str]


class Order(AggregateRoot, Base):
    __tablename__ = "written_orders"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)

    @classmethod
    def create(cls, customer_id: str, items: list[str]) -> "Order":
        order = cls(id=f"o-{customer_id}")
        order.add_event(OrderCreated(order.id, items))
        return order


@pytest.fixture
async def module(database: Database, pulsar_server: LinedPulsar) -> AsyncIterator[ModuleType]:
    """What the text takes for given: names of the package, and things of the reader's own."""
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    client = pulsar.Client(pulsar_server.url)
    made = ModuleType("usage_as_written")
    vars(made).update({name: getattr(pillarbox, name) for name in pillarbox.__all__})
    async with database.sessions() as session:
        vars(made).update(
            asyncio=asyncio, client=client, customer_id="1", event_id="evt-001", handled=[],
            handle=lambda payload: handled(made, payload), items=["a", "b"], Order=Order,
            payload={"order_id": "o-1"}, session=session, session_factory=database.sessions,
        )  # fmt: skip
        yield made
    client.close()


async def handled(module: ModuleType, payload: Any) -> None:
    module.handled.append(payload)


@on("postgres18+asyncpg")
async def test_the_usage_of_the_documents_runs_as_written(
    database: Database, module: ModuleType
) -> None:
    async def both_are_sent() -> bool:
        return [record.status for record in await database.events()] == ["SENT", "SENT"]

    before = asyncio.all_tasks()
    await run(text("usage.txt"), module)
    (running,) = asyncio.all_tasks() - before
    await until(both_are_sent, "the events of both ways are sent")
    projector: OutboxProjector = module.projector
    projector.stop()
    await running
    await module.session.rollback()
    async with database.sessions() as session:
        inbox = (await session.scalars(select(InboxRecord))).all()

    events = [(event.event_type, event.topic, event.payload) for event in await database.events()]
    assert events == [
        ("OrderCreated", "default.order", {"order_id": "o-1", "items": ["a", "b"]}),
        ("order.created", "order.created", {"order_id": "123", "total": 99.99}),
    ]
    assert [(record.message_id, record.event_type, record.source) for record in inbox] == [
        ("evt-001", "OrderCreated", "order-service")
    ]
    assert module.handled == [{"order_id": "o-1"}]
    assert await module.inbox.get_record("evt-001") is not None
    assert await module.inbox.claim("evt-001", event_type="OrderCreated") is False
    assert list(module.handle_message.__annotations__) == ["envelope", "inbox", "return"]
