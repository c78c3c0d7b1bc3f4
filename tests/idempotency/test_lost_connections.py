"""A connection that is lost under a command: the client is told that nothing of it took effect."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends
from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.idempotency.metrics import IdempotencyMetrics
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import ORDER, keys
from tests.idempotency.shop import NewOrder, Shop, place_order
from tests.idempotency.test_metrics import counted
from tests.support.database import Database, on
from tests.support.orders import Order

K1 = {"Idempotency-Key": "k-1"}

Cut = Callable[[AsyncSession], Awaitable[None]]


def add_routes(shop: Shop, cut: Cut, metrics: IdempotencyMetrics) -> None:
    """Add endpoints that place an order, and lose their connection once under a later reader."""
    Held = Annotated[AsyncSession, Depends(shop.box.session)]  # noqa: N806 - a type
    route_class = shop.box.idempotent_route(
        principal=lambda request: request.headers["x-user"], observer=metrics
    )
    router = APIRouter(route_class=route_class)

    async def place(body: NewOrder) -> None:
        shop.executed.append(body.id)
        async with shop.box.unit_of_work() as uow:
            await place_order(uow, body)

    async def read(session: AsyncSession) -> None:
        await session.scalars(select(Order.id))
        if len(shop.executed) == 1:
            await cut(session)

    @router.post("/left-open")
    async def left_open(body: NewOrder, held: Held) -> str:
        await place(body)
        await read(held)
        return body.id

    @router.post("/not-minded")
    async def not_minded(body: NewOrder) -> str:
        await place(body)
        with suppress(SQLAlchemyError):
            async with shop.box.unit_of_work() as reader:
                await read(reader.session)
        return body.id

    shop.app.include_router(router)


async def give_up(session: AsyncSession) -> None:
    """Close the connection on this side, as a call does that is cancelled."""
    await (await session.connection()).invalidate()


@on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")
@pytest.mark.parametrize("path", ["left-open", "not-minded"])
async def test_a_connection_that_was_given_up_under_a_reader_undoes_the_command_and_says_so(
    database: Database, make: Make, path: str
) -> None:
    """It was a bare 500 that nobody counted."""
    await check(database, make(), give_up, path)


@on("postgres18+asyncpg", "postgres18+psycopg")
@pytest.mark.parametrize("path", ["left-open", "not-minded"])
async def test_a_connection_that_the_server_has_ended_under_a_reader_undoes_the_command_and_says_so(
    database: Database, make: Make, path: str
) -> None:
    async def end(session: AsyncSession) -> None:
        pid = await session.scalar(text("SELECT pg_backend_pid()"))
        assert await database.scalar("SELECT pg_terminate_backend(:pid, 30000)", {"pid": pid})

    await check(database, make(), end, path)


async def check(database: Database, shop: Shop, cut: Cut, path: str) -> None:
    metrics = IdempotencyMetrics()
    add_routes(shop, cut, metrics)

    async with client_of(shop) as client:
        lost = await client.post(f"/{path}", json=ORDER, headers=K1)
        left = (await keys(database), await database.order_ids())
        again = await client.post(f"/{path}", json=ORDER, headers=K1)

    assert lost.status_code == 500
    assert lost.json()["type"].endswith("command-not-committed")
    assert left == (0, [])
    assert (again.status_code, "idempotency-replayed" in again.headers) == (200, False)
    assert await database.event_types() == ["OrderPlaced"]
    assert counted(metrics) == {"undone": 1, "executed": 1}
