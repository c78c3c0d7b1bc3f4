"""The short program of a consumer runs as it is written, from one service to the other."""

from decimal import Decimal

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from sqlalchemy import String, delete, func, select
from sqlalchemy.orm import Mapped, mapped_column

from pillarbox import (
    Context,
    DomainEvent,
    Drop,
    MemoryMessageBus,
    OutboxRecord,
    Pillarbox,
    SqlAlchemyOutbox,
)
from pillarbox.errors import InvalidConfig
from tests.support.database import Database, on
from tests.support.orders import Base, Order
from tests.support.waiting import until


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class Payment(Base):
    __tablename__ = "first_program_payments"
    order_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    amount: Mapped[Decimal]


class Service:
    """An order service and a payment service, with a bus between them."""

    def __init__(self, database: Database) -> None:
        self.database, self.bus = database, MemoryMessageBus()
        self.box = box = Pillarbox(database.engine, self.bus, service="orders", environ={})
        self.pay = pay = box.consumer("payments", topics=["orders.order"])

        @pay.on("OrderCreated")
        async def charge(event: OrderCreated, ctx: Context) -> None:
            ctx.session.add(Payment(order_id=event.order_id, amount=event.total))
            await ctx.outbox.add(PaymentProcessed(event.order_id), key=event.order_id)

    async def order(self, *order_ids: str) -> None:
        async with self.box.session_factory() as session:
            for order_id in order_ids:
                created = OrderCreated(order_id, Decimal("9.90"))
                await SqlAlchemyOutbox(session).add(created, key=order_id)
            await session.commit()

    async def payments(self) -> dict[str, Decimal]:
        async with self.database.sessions() as session:
            rows = await session.execute(select(Payment.order_id, Payment.amount))
            return {row.order_id: row.amount for row in rows}

    async def events(self, event_type: str) -> int:
        async with self.database.sessions() as session:
            counted = select(func.count()).where(OutboxRecord.event_type == event_type)
            return int(await session.scalar(counted) or 0)


@pytest.fixture
async def service(database: Database) -> Service:
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(delete(Payment))
    return Service(database)


@on("postgres18+psycopg", "sqlite+aiosqlite")
async def test_every_order_is_paid_once_though_messages_come_three_times(service: Service) -> None:
    orders = [f"o-{n}" for n in range(20)]
    await service.order(*orders)
    await service.box.projector().drain()

    await service.pay.drain()
    service.bus.redeliver()
    await service.pay.drain()
    for message in list(service.bus.messages):
        await service.bus.publish([message])
    await service.pay.drain()

    assert await service.payments() == dict.fromkeys(orders, Decimal("9.90"))
    assert await service.events("PaymentProcessed") == len(orders)


@on("postgres18+psycopg")
async def test_projector_and_consumers_run_beside_the_application(service: Service) -> None:
    async def both_paid() -> bool:
        return len(await service.payments()) == 2

    async with service.box.running(projector=True, consumers=True):
        await service.order("o-1")
        await service.order("o-2")
        await until(both_paid, "two payments")


@on("postgres18+psycopg", "sqlite+aiosqlite")
async def test_one_command_handler_serves_a_request_and_a_consumer_unchanged(
    service: Service,
) -> None:
    box = service.box

    async def place(order_id: str) -> None:
        async with box.unit_of_work() as uow:
            await uow.repository(Order).save(Order.place(order_id))
            await uow.commit()

    router = APIRouter(route_class=box.idempotent_route(principal=lambda _: "ada"))
    router.post("/orders/{order_id}", status_code=201)(place)
    app = FastAPI()
    app.include_router(router)
    places = box.consumer("places", topics=["orders.order"])

    @places.on("OrderCreated")
    async def placed(event: OrderCreated, ctx: Context) -> None:
        await place(event.order_id)
        if ctx.envelope.key == "bad":
            raise Drop("after its commit, which was ours to make")

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
        key = {"Idempotency-Key": "k-1"}
        answers = [await client.post("/orders/by-request", headers=key) for _ in range(2)]
    await service.order("by-message", "bad")
    await box.projector().drain()
    await places.drain()
    service.bus.redeliver()
    await places.drain()

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert await service.database.order_ids() == ["by-message", "by-request"]
    assert await service.events("OrderPlaced") == 2


@on("sqlite+aiosqlite")
async def test_a_consumer_that_was_stopped_before_it_ran_does_not_run(service: Service) -> None:
    service.pay.stop()

    await service.pay.run_forever()

    assert service.pay.topics == ("orders.order",)


@on("sqlite+aiosqlite")
async def test_what_cannot_be_a_consumer_is_refused_at_once(service: Service) -> None:
    box = service.box

    with pytest.raises(InvalidConfig, match="consumer 'payments' is there already"):
        box.consumer("payments", topics=["t"])
    with pytest.raises(InvalidConfig, match="has a name that some broker refuses"):
        box.consumer("pay.ments", topics=["t"])
    with pytest.raises(InvalidConfig, match="topics names no topic"):
        box.consumer("one", topics=[])
    with pytest.raises(InvalidConfig, match="topics names no topic"):
        box.consumer("two", topics="orders.order")
    service.pay.task("mail")(service.order)
    with pytest.raises(InvalidConfig, match="task 'mail' is there already"):
        service.pay.task("mail")(service.order)
    assert list(box.consumers) == ["payments"]


@on("sqlite+aiosqlite")
async def test_a_bus_that_can_only_publish_is_refused_when_the_consumer_runs(
    service: Service,
) -> None:
    class Mute(MemoryMessageBus):
        subscribe = None  # type: ignore[assignment]  # as a bus of a user's own

    box = Pillarbox(service.database.engine, Mute(), environ={})

    with pytest.raises(InvalidConfig, match="bus can only publish"):
        await box.consumer("payments", topics=["t"]).run_forever()
