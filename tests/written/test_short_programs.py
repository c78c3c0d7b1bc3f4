"""The short programs that a new user types run as they are written, letter by letter."""

from collections.abc import AsyncIterator
from datetime import timedelta
from types import ModuleType
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

import pillarbox as library
from pillarbox import Context, Pillarbox
from pillarbox.saga.definition import Saga
from pillarbox.testing import BoxUnderTest
from pillarbox.workers import run_beside
from tests.support.database import Database, on
from tests.support.waiting import until
from tests.written import given
from tests.written.given import (
    ORDER,
    Base,
    Charge,
    InventoryReserved,
    OutOfStock,
    Payment,
    PaymentProcessed,
    ReserveInventory,
)
from tests.written.running import run, text

on_two = on("postgres18+psycopg", "sqlite+aiosqlite")

# The fields for which the text has three dots.
PROGRAMS = text("short_programs.txt").replace("; ...", "; order_id: str; total: int", 1)


class Programs:
    """The programs as one module, beside which other services answer."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.box: Pillarbox = module.box
        given.Order.created = module.OrderCreated
        self._answer()

    @classmethod
    async def started(cls) -> "Programs":
        module = ModuleType("programs_as_written")
        vars(module).update({name: getattr(library, name) for name in library.__all__})
        vars(module).update({k: v for k, v in vars(given).items() if not k.startswith("__")})
        vars(module).update(
            APIRouter=APIRouter, Annotated=Annotated, AsyncSession=AsyncSession, Depends=Depends,
            FastAPI=FastAPI, timedelta=timedelta,
        )  # fmt: skip
        await run(PROGRAMS, module)
        return cls(module)

    def _answer(self) -> None:
        """Do what the services of stock and cards would do."""
        stock = self.box.consumer("stock", topics=["orders.command"])

        @stock.on(ReserveInventory)
        async def reserve(event: ReserveInventory, ctx: Context) -> None:
            none = await ctx.session.scalar(
                select(given.OrderRow.customer_id).where(given.OrderRow.id == event.order_id)
            )
            answer = OutOfStock if none == "unlucky" else InventoryReserved
            await ctx.outbox.add(answer(event.order_id), key=event.order_id)

        @stock.on(Charge)
        async def charge(event: Charge, ctx: Context) -> None:
            await ctx.outbox.add(PaymentProcessed(event.order_id), key=event.order_id)

    async def count(self, kind: type[Base]) -> int | None:
        async with self.box.session_factory() as session:
            return await session.scalar(select(func.count()).select_from(kind))

    def client(self, app: FastAPI) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")

    def guarded(self) -> FastAPI:
        """An application with the router of the third program, behind a login."""
        app = FastAPI()
        app.include_router(self.module.router)

        @app.middleware("http")
        async def authenticate(request: Request, call_next: Any) -> Any:
            request.state.user_id = "ada"
            return await call_next(request)

        return app


@pytest.fixture
async def programs(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Programs]:
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    url = database.url.render_as_string(hide_password=False)
    monkeypatch.setenv("PILLARBOX_DATABASE_URL", url)
    monkeypatch.setenv("PILLARBOX_BUS_URL", "memory://")
    made = await Programs.started()
    yield made
    await made.box.engine.dispose()


@on_two
async def test_the_programs_run_as_services(database: Database, programs: Programs) -> None:
    app, box = programs.module.app, programs.box

    async def statuses() -> dict[str, int]:
        async with database.sessions() as session:
            found = select(given.OrderRow.status, func.count()).group_by(given.OrderRow.status)
            return {row[0]: row[1] for row in await session.execute(found)}

    async def all_is_done() -> bool:
        return await statuses() == {"CONFIRMED": 1, "REJECTED": 1} and (
            await programs.count(Payment) == 3
        )

    async with (
        app.router.lifespan_context(app),
        run_beside(list(box.consumers.values())),
        programs.client(app) as orders,
        programs.client(programs.guarded()) as guarded,
    ):
        rows = [
            await orders.post("/orders", json=ORDER | {"customer_id": name})
            for name in ("lucky", "unlucky")
        ]
        key = {"Idempotency-Key": "of-the-service"}
        placed = [await guarded.post("/orders", json=ORDER, headers=key) for _ in range(2)]
        await until(all_is_done, "both sagas have ended and three orders are paid")

    assert [answer.status_code for answer in rows] == [201, 201]
    assert [(answer.status_code, answer.json()) for answer in placed] == [(201, {"id": "o-1"})] * 2
    assert await programs.count(given.Order) == 1
    assert issubclass(programs.module.PlaceOrder, Saga)


@pytest.fixture
def pillarbox_app(programs: Programs) -> Pillarbox:
    return programs.box


@pytest.fixture
async def client(pillarbox: BoxUnderTest, programs: Programs) -> AsyncIterator[httpx.AsyncClient]:
    async with programs.client(programs.guarded()) as client:
        yield client


@on_two
async def test_the_test_of_the_text_passes(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient, programs: Programs
) -> None:
    vars(programs.module)["count"] = programs.count

    await programs.module.test_paid_once(pillarbox, client)

    assert [event.event_type for event in pillarbox.outbox.events].count("PaymentProcessed") == 2
