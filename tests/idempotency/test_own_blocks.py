"""Dependencies that stand in a savepoint or a transaction of their own while the endpoint runs."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

from pillarbox import SqlAlchemyOutbox
from pillarbox.errors import UnitOfWorkError
from tests.idempotency.conftest import client_of
from tests.idempotency.keys import ORDER, keys
from tests.idempotency.shop import NewOrder, Shop, place_order
from tests.support.database import Database, on
from tests.support.orders import Noted, Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

K1 = {"Idempotency-Key": "k-1"}
ORDERS = select(func.count()).select_from(Order)


def routes_of(shop: Shop) -> APIRouter:
    router = APIRouter(
        route_class=shop.box.idempotent_route(principal=lambda r: r.headers["x-user"])
    )
    add_savepoints(shop, router)
    add_transactions(shop, router)
    add_idle_transactions(shop, router)
    return router


def add_savepoints(shop: Shop, router: APIRouter) -> None:
    """Add endpoints behind a dependency that holds a savepoint open."""
    box = shop.box
    Held = Annotated[AsyncSession, Depends(box.session)]  # noqa: N806 - a type

    async def savepoint(held: Held) -> AsyncIterator[None]:
        async with held.begin_nested():
            yield

    async def read_in_it(held: Held) -> AsyncIterator[AsyncSessionTransaction]:
        async with held.begin_nested() as opened:
            await held.scalar(ORDERS)
            yield opened

    InIt = Annotated[AsyncSessionTransaction, Depends(read_in_it)]  # noqa: N806 - a type

    @router.post("/savepoint", dependencies=[Depends(savepoint)])
    async def inside(body: NewOrder, held: Held) -> str:
        shop.executed.append(body.id)
        await held.scalar(ORDERS)
        async with box.unit_of_work() as uow:
            await place_order(uow, body)
        return body.id

    @router.post("/savepoint-read", dependencies=[Depends(read_in_it)])
    async def inside_read(body: NewOrder) -> str:
        shop.executed.append(body.id)
        async with box.unit_of_work() as uow:
            await place_order(uow, body)
        return body.id

    @router.post("/savepoint-undone")
    async def undone(body: NewOrder, opened: InIt) -> str:
        shop.executed.append(body.id)
        await opened.rollback()
        return body.id

    @router.post("/savepoint-lost")
    async def lost(body: NewOrder) -> str:
        shop.executed.append(body.id)
        async with box.unit_of_work() as outer:
            with suppress(ZeroDivisionError):
                async with outer.savepoint():
                    await outer.session.scalar(ORDERS)
                    async with box.unit_of_work() as uow:
                        await place_order(uow, body)
                    raise ZeroDivisionError
            await outer.commit()
        return body.id


def begun_of(shop: Shop) -> Callable[..., AsyncIterator[AsyncSession]]:
    """Return a dependency that yields a session in its own transaction."""

    async def begun(
        held: Annotated[AsyncSession, Depends(shop.box.session)],
    ) -> AsyncIterator[AsyncSession]:
        async with held.begin():
            yield held

    return begun


def add_transactions(shop: Shop, router: APIRouter) -> None:
    """Add endpoints behind a dependency that means to commit what they do."""
    Begun = Annotated[AsyncSession, Depends(begun_of(shop))]  # noqa: N806 - a type

    @router.post("/begun/flushes")
    async def flushes(body: NewOrder, session: Begun) -> str:
        session.add(Order.place(body.id))
        await session.flush()
        return body.id

    @router.post("/begun/adds")
    async def adds(body: NewOrder, session: Begun) -> str:
        session.add(Order.place(body.id))
        return body.id

    @router.post("/begun/tells")
    async def tells(body: NewOrder, session: Begun) -> str:
        await SqlAlchemyOutbox(session).add(Noted("asked"))
        return body.id

    @router.post("/begun/commits")
    async def commits(body: NewOrder, session: Begun) -> str:
        shop.executed.append(body.id)
        session.add(Order.place(body.id))
        await session.commit()
        return body.id

    @router.post("/begun/refuses")
    async def refuses(body: NewOrder, session: Begun) -> str:
        shop.executed.append(body.id)
        session.add(Order.place(body.id))
        await session.flush()
        raise HTTPException(409, "sold out")

    @router.post("/begun/fails", status_code=503)
    async def fails(body: NewOrder, session: Begun) -> str:
        shop.executed.append(body.id)
        session.add(Order.place(body.id))
        await session.flush()
        return "come back later"


def add_idle_transactions(shop: Shop, router: APIRouter) -> None:
    """Add endpoints that have nothing to commit in such a transaction."""
    Held = Annotated[AsyncSession, Depends(shop.box.session)]  # noqa: N806 - a type
    Begun = Annotated[AsyncSession, Depends(begun_of(shop))]  # noqa: N806 - a type

    @router.post("/begun/reads")
    async def reads(body: NewOrder, session: Begun) -> str:
        shop.executed.append(body.id)
        await session.scalar(ORDERS)
        return body.id

    @router.post("/begun/is-unused")
    async def is_unused(body: NewOrder, session: Begun) -> str:
        shop.executed.append(body.id)
        return body.id

    @router.post("/begun/calls")
    async def calls(body: NewOrder, held: Held) -> str:
        """Begin by a call, and think better of it."""
        shop.executed.append(body.id)
        await held.begin()
        held.add(Order.place(body.id))
        await held.flush()
        return body.id


@pytest.fixture
async def raised(shop: Shop) -> list[Exception]:
    """What the application could not answer."""
    found: list[Exception] = []

    @shop.app.middleware("http")
    async def note(request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except Exception as error:
            found.append(error)
            raise

    return found


@pytest.fixture
async def client(shop: Shop, raised: list[Exception]) -> AsyncIterator[httpx.AsyncClient]:
    shop.app.include_router(routes_of(shop))
    async with client_of(shop) as opened:
        yield opened


async def twice(client: httpx.AsyncClient, path: str) -> Mapping[str, Any]:
    first = await client.post(path, json=ORDER, headers=K1)
    again = await client.post(path, json=ORDER, headers=K1)
    return {
        "status": first.status_code,
        "is_same": again.content == first.content,
        "is_replayed": again.headers.get("idempotency-replayed") == "true",
    }


DONE = {"status": 200, "is_same": True, "is_replayed": True}


@pytest.mark.parametrize("path", ["/savepoint", "/savepoint-read"])
async def test_what_is_armed_in_a_dependencys_savepoint_commits_with_the_answer(
    database: Database, shop: Shop, client: httpx.AsyncClient, path: str
) -> None:
    """The savepoint was rolled back at the end: the answer was recorded, and nothing else was.

    With the claim inside it, each try was a 500.
    """
    assert await twice(client, path) == DONE
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_claim_in_a_dependencys_savepoint_outlives_its_rollback(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    """It went with the savepoint unnoticed, and every try was a 500."""
    assert await twice(client, "/savepoint-undone") == DONE
    assert shop.executed == ["o-1"]


async def test_armed_work_in_a_savepoint_that_is_rolled_back_is_not_answered_for(
    database: Database, shop: Shop, client: httpx.AsyncClient, raised: list[Exception]
) -> None:
    """The answer was recorded, and the unit of work was gone."""
    answer = await client.post("/savepoint-lost", json=ORDER, headers=K1)

    assert answer.status_code == 500
    assert "a savepoint of a unit of work was rolled back after another one" in str(raised[0])
    assert await keys(database) == 0
    assert await database.order_ids() == []


@pytest.mark.parametrize("path", ["/begun/flushes", "/begun/adds", "/begun/tells"])
async def test_what_a_dependencys_own_transaction_would_commit_too_late_is_refused(
    database: Database, client: httpx.AsyncClient, raised: list[Exception], path: str
) -> None:
    """The answer was recorded, and what it answered for was undone."""
    answer = await client.post(path, json=ORDER, headers=K1)

    assert answer.status_code == 500
    assert isinstance(raised[0], UnitOfWorkError)
    assert "call `await session.commit()` in the endpoint" in str(raised[0])
    assert await keys(database) == 0
    assert await database.order_ids() == []


@pytest.mark.parametrize("path", ["/begun/reads", "/begun/is-unused", "/begun/calls"])
async def test_a_dependencys_own_transaction_with_nothing_to_commit_is_let_be(
    database: Database, shop: Shop, client: httpx.AsyncClient, raised: list[Exception], path: str
) -> None:
    assert await twice(client, path) == DONE
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []
    assert raised == []


async def test_a_dependencys_own_transaction_that_the_endpoint_commits_commits_with_the_answer(
    database: Database, client: httpx.AsyncClient
) -> None:
    assert await twice(client, "/begun/commits") == DONE
    assert await database.order_ids() == ["o-1"]


async def test_a_dependencys_own_transaction_that_would_be_rolled_back_is_undone(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    assert await twice(client, "/begun/refuses") == DONE | {"status": 409}
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_a_dependencys_own_transaction_is_undone_with_a_server_error(
    database: Database, shop: Shop, client: httpx.AsyncClient, raised: list[Exception]
) -> None:
    for _ in range(2):
        answer = await client.post("/begun/fails", json=ORDER, headers=K1)
        assert (answer.status_code, answer.json()) == (503, "come back later")

    assert shop.executed == ["o-1", "o-1"]
    assert await database.order_ids() == []
    assert raised == []
