"""The short programs that a new user types run as they are written, together as one service."""

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel
from sqlalchemy import String, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import (
    AggregateRoot,
    Context,
    DomainEvent,
    Pillarbox,
    SqlAlchemyOutbox,
    SQLAlchemyUnitOfWork,
)
from pillarbox.testing import BoxUnderTest
from tests.support.database import Database, on
from tests.support.waiting import until

on_two = on("postgres18+psycopg", "sqlite+aiosqlite")


class Base(DeclarativeBase):
    pass


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


class PaymentProcessed(DomainEvent):
    aggregate_type = "payment"
    order_id: str


class OrderRow(Base):
    __tablename__ = "short_order_rows"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[Decimal]


class Order(AggregateRoot, Base):
    __tablename__ = "short_orders"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[Decimal]

    @classmethod
    def create(cls, customer_id: str, items: Sequence[Decimal]) -> "Order":
        order = cls(id=f"o-{customer_id}", total=sum(items, Decimal(0)))
        order.add_event(OrderCreated(order.id, order.total))
        return order


class Payment(Base):
    __tablename__ = "short_payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(String(64))
    amount: Mapped[Decimal]


class NewRow(BaseModel):
    id: str
    total: Decimal


class NewOrder(BaseModel):
    customer_id: str
    items: list[Decimal]


class OrderOut(BaseModel):
    id: str

    @classmethod
    def of(cls, order: Order) -> "OrderOut":
        return cls(id=order.id)


ORDER: dict[str, Any] = {"customer_id": "1", "items": ["9.90", "0.10"]}


class Programs:
    """The programs, in the order of the requirements."""

    def __init__(self) -> None:
        box = Pillarbox.from_env(service="orders")
        app = FastAPI(lifespan=box.lifespan(projector=True, consumers=True))

        @app.middleware("http")
        async def authenticate(request: Request, call_next: Any) -> Any:
            request.state.user_id = "ada"
            return await call_next(request)

        @app.post("/rows", status_code=201)
        async def create(
            body: NewRow, session: Annotated[AsyncSession, Depends(box.session)]
        ) -> None:
            order = OrderRow(**body.model_dump())
            session.add(order)
            await session.flush()
            await SqlAlchemyOutbox(session).add(OrderCreated(order.id, order.total), key=order.id)
            await session.commit()

        pay = box.consumer("payments", topics=["orders.order"])

        @pay.on("OrderCreated")
        async def charge(event: OrderCreated, ctx: Context) -> None:
            ctx.session.add(Payment(order_id=event.order_id, amount=event.total))
            await ctx.outbox.add(PaymentProcessed(event.order_id), key=event.order_id)

        router = APIRouter(route_class=box.idempotent_route(principal=lambda r: r.state.user_id))

        @router.post("/orders", status_code=201)
        async def place(
            body: NewOrder, uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]
        ) -> OrderOut:
            order = Order.create(body.customer_id, body.items)
            await uow.repository(Order).save(order)
            await uow.commit()
            return OrderOut.of(order)

        app.include_router(router)
        self.box, self.app = box, app

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://shop")


@pytest.fixture
async def programs(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Programs]:
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    url = database.url.render_as_string(hide_password=False)
    monkeypatch.setenv("PILLARBOX_DATABASE_URL", url)
    monkeypatch.setenv("PILLARBOX_BUS_URL", "memory://")
    made = Programs()
    yield made
    await made.box.engine.dispose()


@on_two
async def test_the_programs_run_as_a_service(database: Database, programs: Programs) -> None:
    async def both_paid() -> bool:
        async with database.sessions() as session:
            return await session.scalar(select(func.count()).select_from(Payment)) == 2

    async with programs.app.router.lifespan_context(programs.app), programs.client() as client:
        row = await client.post("/rows", json={"id": "r-1", "total": "1.00"})
        key = {"Idempotency-Key": "of-the-service"}
        placed = [await client.post("/orders", json=ORDER, headers=key) for _ in range(2)]
        await until(both_paid, "two payments")

    assert row.status_code == 201
    assert [(answer.status_code, answer.json()) for answer in placed] == [(201, {"id": "o-1"})] * 2
    types = sorted(await database.event_types())
    assert types == ["OrderCreated"] * 2 + ["PaymentProcessed"] * 2


@pytest.fixture
def pillarbox_app(programs: Programs) -> Pillarbox:
    return programs.box


@pytest.fixture
async def client(pillarbox: BoxUnderTest, programs: Programs) -> AsyncIterator[httpx.AsyncClient]:
    async with programs.client() as client:
        yield client


@on_two
async def test_paid_once(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient, programs: Programs
) -> None:
    async def count(kind: type[Base]) -> int | None:
        async with programs.box.session_factory() as session:
            return await session.scalar(select(func.count()).select_from(kind))

    await client.post("/orders", json=ORDER, headers={"Idempotency-Key": "k1"})
    pillarbox.assert_recorded("OrderCreated", key="o-1")
    await pillarbox.deliver(duplicates=2)  # outbox -> memory bus -> consumers, inline
    assert await count(Payment) == 1
