"""Dependencies at work before the key is claimed: what becomes of them takes no claim along."""

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.idempotency.decision import Busy
from tests.idempotency.conftest import client_of
from tests.idempotency.keys import ORDER, store_of
from tests.idempotency.shop import NewOrder, Shop
from tests.support.database import Database, on
from tests.support.orders import Noted, Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

K1 = {"Idempotency-Key": "k-1"}


def dependencies_of(shop: Shop) -> Mapping[str, Any]:
    """Return what is done before the key is claimed, by its name."""
    box = shop.box
    Held = Annotated[AsyncSession, Depends(box.session)]  # noqa: N806 - a type
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]  # noqa: N806 - a type

    async def reads(held: Held) -> None:
        await held.scalar(select(func.count()).select_from(Order))

    async def audits() -> None:
        async with box.unit_of_work() as uow:
            await uow.outbox.add(Noted("asked"))
            await uow.commit()

    async def loads(uow: Uow) -> None:
        await uow.session.get(Order, "o-none")

    async def is_untidy(held: Held) -> None:
        held.add(Order.place("o-untidy"))
        await held.flush()

    return {found.__name__: Depends(found) for found in (reads, audits, loads, is_untidy)}


def add_routes(shop: Shop) -> None:
    """Add endpoints that undo units of work which began before the claim, and one that does not."""
    Held = Annotated[AsyncSession, Depends(shop.box.session)]  # noqa: N806 - a type
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(shop.box.uow)]  # noqa: N806 - a type

    async def rolls_back(body: NewOrder, uow: Uow) -> str:
        shop.executed.append(body.id)
        await uow.rollback()
        return "nothing to do"

    async def refuses(body: NewOrder, uow: Uow) -> None:
        shop.executed.append(body.id)
        await uow.repository(Order).save(Order.place(body.id))
        await uow.session.flush()
        raise HTTPException(422, "sold out")

    async def rolls_back_twice(body: NewOrder, held: Held) -> str:
        shop.executed.append(body.id)
        await held.rollback()
        held.add(Order.place(body.id))
        await held.flush()
        await held.rollback()
        return body.id

    async def answers(body: NewOrder) -> str:
        shop.executed.append(body.id)
        return body.id

    before = dependencies_of(shop)
    route_class = shop.box.idempotent_route(principal=lambda r: r.headers["x-user"])
    router = APIRouter(route_class=route_class)
    for name in ("reads", "audits"):
        for endpoint in (rolls_back, refuses):
            path = f"/{name}/{endpoint.__name__}"
            router.post(path, dependencies=[before[name], before["loads"]])(endpoint)
    twice = [before["audits"], before["reads"]]
    router.post("/twice", dependencies=twice)(rolls_back_twice)
    router.post("/untidy", dependencies=[before["is_untidy"]])(answers)
    shop.app.include_router(router)


@pytest.fixture
async def client(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    add_routes(shop)
    async with client_of(shop) as opened:
        yield opened


@pytest.mark.parametrize(("ending", "status"), [("rolls_back", 200), ("refuses", 422)])
@pytest.mark.parametrize("before", ["reads", "audits"])
async def test_a_claim_inside_a_dependencys_unit_of_work_outlives_its_rollback(
    database: Database,
    shop: Shop,
    client: httpx.AsyncClient,
    before: str,
    ending: str,
    status: int,
) -> None:
    """The claim stood in its savepoint and went with it: each try was a 500, and executed again."""
    first = await client.post(f"/{before}/{ending}", json=ORDER, headers=K1)
    again = await client.post(f"/{before}/{ending}", json=ORDER, headers=K1)

    assert (first.status_code, again.status_code) == (status, status)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []
    audited = 2 if before == "audits" else 0  # for the replay, too
    assert await database.event_types() == ["Noted"] * audited


async def test_a_claim_that_was_made_again_outlives_a_second_rollback(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    first = await client.post("/twice", json=ORDER, headers=K1)
    again = await client.post("/twice", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_a_request_that_was_refused_at_its_claim_records_nothing_at_its_end(
    database: Database, shop: Shop, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was free when its dependency was undone: its 409 was the answer for ever."""
    refuse_once(monkeypatch, shop)

    refused = await client.post("/untidy", json=ORDER, headers=K1)
    recorded = await database.scalar("SELECT count(*) FROM idempotency")
    first = await client.post("/untidy", json=ORDER, headers=K1)
    again = await client.post("/untidy", json=ORDER, headers=K1)

    assert (refused.status_code, recorded) == (409, 0)
    assert (first.status_code, again.content) == (200, first.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []
    assert await database.scalar("SELECT status_code FROM idempotency") == 200


def refuse_once(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    """Have the first claim meet somebody who works on the key, and who is gone by the next one."""
    store: Any = type(store_of(shop))
    claim, calls = store.claim, []

    def claimed(self: Any, connection: Any, bid: Any) -> Any:
        calls.append(bid)
        return Busy() if len(calls) == 1 else claim(self, connection, bid)

    monkeypatch.setattr(store, "claim", claimed)
