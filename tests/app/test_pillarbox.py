import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Annotated, Any

import attrs
import httpx
import psycopg
import pydantic
import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pillarbox import (
    AggregateRoot,
    DomainEvent,
    Pillarbox,
    SqlAlchemyOutbox,
    SQLAlchemyUnitOfWork,
)
from pillarbox.database import sync_url
from pillarbox.errors import DatabaseUnreachable, InvalidConfig, SchemaMissing, TopicUnknown
from pillarbox.outbox.routing import TenantTopics
from pillarbox.outbox.wakeup import CHANNEL
from pillarbox.servers import Postgres
from tests.support.database import Database, on, on_postgres
from tests.support.orders import Order, Plan
from tests.support.processes import until

URL = "postgresql://app@db.example/orders"
on_one_database = on("postgres18+psycopg")


class Base(DeclarativeBase):
    pass


class OrderRow(Base):
    __tablename__ = "short_program_orders"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    total: Mapped[Decimal]


class NewOrder(pydantic.BaseModel):
    id: str
    total: Decimal


class OrderCreated(DomainEvent):
    aggregate_type = "order"
    order_id: str
    total: Decimal


class PydanticCreated(pydantic.BaseModel):
    order_id: str
    total: Decimal


@attrs.frozen
class AttrsCreated:
    order_id: str
    total: Decimal


class PlanRepository:
    """Keeps plans nowhere: the events are what the tests look at."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session

    async def save(self, aggregate: Plan) -> None:
        del aggregate

    async def get(self, aggregate_id: Any) -> Plan | None:
        return Plan(aggregate_id, version=7)


def address(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


def plain_address(database: Database) -> str:
    url = sync_url(database.url).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)


@asynccontextmanager
async def made(database: Database, **options: Any) -> AsyncIterator[Pillarbox]:
    box = Pillarbox(address(database), service="orders", **options)
    try:
        yield box
    finally:
        await box.engine.dispose()


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Run an app's lifespan around a client; httpx itself runs none."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://orders"
        ) as client,
    ):
        yield client


def test_a_second_repository_for_a_class_is_refused() -> None:
    box = Pillarbox(URL, environ={})
    box.repository(Plan, PlanRepository)
    box.repository(Plan, PlanRepository)

    with pytest.raises(InvalidConfig, match="is registered already"):
        box.repository(Plan, lambda session: PlanRepository(session))  # noqa: PLW0108 - another one


async def test_an_engine_of_the_callers_is_taken_as_it_is() -> None:
    engine = create_async_engine("postgresql+asyncpg://app@db.example/orders")

    assert Pillarbox(engine, environ={}).engine is engine


@on_postgres
async def test_the_first_short_program_runs_as_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLARBOX_DATABASE_URL", address(database))
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)

    box = Pillarbox.from_env(service="orders")
    app = FastAPI(lifespan=box.lifespan(projector=False))

    @app.post("/orders", status_code=201)
    async def create(
        body: NewOrder, session: Annotated[AsyncSession, Depends(box.session)]
    ) -> None:
        order = OrderRow(**body.model_dump())
        session.add(order)
        await session.flush()
        await SqlAlchemyOutbox(session).add(OrderCreated(order.id, order.total), key=order.id)
        await session.commit()

    async with client_of(app) as client:
        answer = await client.post("/orders", json={"id": "o-1", "total": "99.90"})

    (record,) = await database.events()
    assert answer.status_code == 201
    assert (record.topic, record.key, record.event_type) == ("orders.order", "o-1", "OrderCreated")
    assert record.payload == {"order_id": "o-1", "total": "99.90"}
    assert (record.status, record.tenant_id) == ("NEW", "default")


@on_postgres
async def test_a_route_that_fails_leaves_neither_row_nor_event(database: Database) -> None:
    async with made(database) as box:
        app = FastAPI()

        @app.post("/orders")
        async def create(session: Annotated[AsyncSession, Depends(box.session)]) -> None:
            session.add(Order.place("o-1"))
            await session.flush()
            raise RuntimeError

        async with client_of(app) as client:
            with pytest.raises(RuntimeError):
                await client.post("/orders")

    assert await database.events() == []
    assert await database.order_ids() == []


@on_postgres
async def test_a_route_may_take_a_unit_of_work(database: Database) -> None:
    async with made(database) as box:
        app = FastAPI(lifespan=box.lifespan())

        @app.post("/orders")
        async def place(uow: Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]) -> None:
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.commit()

        async with client_of(app) as client:
            answer = await client.post("/orders")

    (record,) = await database.events()
    assert answer.status_code == 200
    assert (record.topic, record.key, record.aggregate_version) == ("orders.order", "o-1", 1)


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
async def test_a_unit_of_work_of_the_box_records_under_its_service(database: Database) -> None:
    async with made(database) as box, box.unit_of_work() as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    (record,) = await database.events()
    assert record.topic == "orders.order"


@on_one_database
async def test_a_plain_aggregate_is_saved_by_the_repository_that_the_box_knows(
    database: Database,
) -> None:
    async with made(database) as box:
        box.repository(Plan, PlanRepository)
        async with box.unit_of_work() as uow:
            plan = await uow.repository(Plan).get("plan-1")
            assert plan is not None
            plan.note("redrawn")
            await uow.commit()

    (record,) = await database.events()
    assert (record.aggregate_type, record.key, record.aggregate_version) == ("Plan", "plan-1", 7)


@on_one_database
async def test_the_routing_policy_of_the_box_names_the_topics(database: Database) -> None:
    async with made(database, routing=TenantTopics()) as box, box.unit_of_work() as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()

    (record,) = await database.events()
    assert record.topic == "tenant-default"


@on_postgres
@pytest.mark.parametrize("kind", [PydanticCreated, AttrsCreated])
async def test_pydantic_models_and_attrs_objects_are_recorded_like_events(
    database: Database, kind: type[PydanticCreated] | type[AttrsCreated]
) -> None:
    async with made(database) as box, box.unit_of_work() as uow:
        event = kind(order_id="o-1", total=Decimal("9.90"))
        await uow.outbox.add(event, key="o-1", aggregate_type="order")
        await uow.commit()

    (record,) = await database.events()
    assert record.event_type == kind.__name__
    assert record.topic == "orders.order"
    assert record.payload == {"order_id": "o-1", "total": "9.90"}


@on_one_database
async def test_a_refused_event_leaves_the_session_usable(database: Database) -> None:
    async with made(database) as box, box.session_factory() as session:
        outbox = SqlAlchemyOutbox(session)
        with pytest.raises(TopicUnknown):
            await outbox.add(AttrsCreated("o-1", Decimal(1)))
        await outbox.add(AttrsCreated("o-2", Decimal(2)), topic="orders.order")
        await session.commit()

    assert [record.payload["order_id"] for record in await database.events()] == ["o-2"]


async def test_the_lifespan_refuses_a_database_without_tables(empty_url: str) -> None:
    box = Pillarbox(empty_url, service="orders")
    app = FastAPI(lifespan=box.lifespan(projector=False))

    with pytest.raises(SchemaMissing, match=r"no event can be recorded; run `pillarbox schema"):
        await app.router.lifespan_context(app).__aenter__()


@on_one_database
async def test_a_role_that_row_security_cannot_hold_is_a_warning_while_tenancy_is_off(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with made(database) as box:
        with caplog.at_level(logging.WARNING, logger="pillarbox.app"):
            await box.check()

    assert "role postgres is a superuser" in caplog.text


@on_one_database
async def test_the_engine_is_closed_when_the_lifespan_ends(
    database: Database, postgres18: Postgres
) -> None:
    url = database.url.update_query_dict({"application_name": "closing-box"})
    box = Pillarbox(url.render_as_string(hide_password=False), service="orders")

    def connections() -> int:
        with psycopg.connect(postgres18.url) as watcher:
            found = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'closing-box'"
            ).fetchone()
        return 0 if found is None else int(found[0])

    async with box.running(), box.session_factory() as session:
        await session.connection()
        assert connections() == 1

    await asyncio.to_thread(until, lambda: connections() == 0, "the end of every connection")


@on_one_database
async def test_the_engine_is_closed_also_when_the_check_refuses(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    disposed = []
    box = Pillarbox(address(database), schema="nowhere", service="orders")
    dispose = AsyncEngine.dispose

    async def watched(engine: AsyncEngine, close: bool = True) -> None:
        disposed.append(engine)
        await dispose(engine, close)

    monkeypatch.setattr(AsyncEngine, "dispose", watched)

    with pytest.raises(SchemaMissing, match="schema nowhere"):
        await box.running().__aenter__()

    assert disposed == [box.engine]


@on_postgres
async def test_while_the_box_runs_other_processes_hear_of_commits(database: Database) -> None:
    listener = await psycopg.AsyncConnection.connect(plain_address(database), autocommit=True)
    async with listener, made(database) as box, box.running():
        await listener.execute(f"LISTEN {CHANNEL}".encode())
        async with box.unit_of_work() as uow:
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.commit()

        heard = [found.payload async for found in listener.notifies(timeout=30, stop_after=1)]

    assert heard == [""]


@on_one_database
async def test_aggregates_of_a_plain_session_are_collected(database: Database) -> None:
    async with made(database) as box:
        async with box.session_factory() as session:
            session.add(Order.place("o-1"))
            await session.commit()
        async with box.session_factory() as session:
            order = await session.get_one(Order, "o-1")
            order.confirm()
            await session.commit()

    assert await database.event_types() == ["OrderPlaced", "OrderConfirmed"]


@on_one_database
async def test_a_mapped_class_needs_no_repository_and_a_plain_one_does(database: Database) -> None:
    assert issubclass(Order, AggregateRoot)
    async with made(database) as box, box.unit_of_work() as uow:
        assert uow.repository(Order) is not None
        with pytest.raises(InvalidConfig, match=r"call box\.repository"):
            uow.repository(Plan)


async def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    box = Pillarbox("postgresql://bob:hunter2@127.0.0.1:1/x")

    with pytest.raises(DatabaseUnreachable, match="does not answer; is it running") as refused:
        await box.check()

    assert "hunter2" not in str(refused.value)
