"""Commands that a test's application refuses: in the test's own transaction as in production."""

from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy import select

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.testing import BoxUnderTest
from tests.support.database import on
from tests.testing.shop import Order, Shop

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

K1 = {"Idempotency-Key": "k-1"}


def add_refusals(shop: Shop, executed: list[str]) -> None:
    """Add endpoints behind a dependency that has read with the unit of work that they undo."""
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(shop.box.uow)]  # noqa: N806 - a type
    router = APIRouter(route_class=shop.box.idempotent_route(principal=lambda _: "ada"))

    async def loads(uow: Uow) -> None:
        (await uow.session.scalars(select(Order))).all()

    @router.post("/raises", dependencies=[Depends(loads)])
    async def raises(uow: Uow) -> None:
        executed.append("raises")
        uow.session.add(Order(id="o-9", total=1))
        await uow.session.flush()
        raise HTTPException(422, "sold out")

    @router.post("/rolls-back", dependencies=[Depends(loads)])
    async def rolls_back(uow: Uow) -> str:
        executed.append("rolls-back")
        await uow.rollback()
        return "nothing to do"

    shop.app.include_router(router)


@pytest.mark.parametrize(("path", "status"), [("raises", 422), ("rolls-back", 200)])
async def test_a_refusal_behind_a_dependency_that_reads_is_answered_again(
    pillarbox: BoxUnderTest, client: httpx.AsyncClient, shop: Shop, path: str, status: int
) -> None:
    """The unit of work took the key's claim along: each try was a 500, and executed."""
    del pillarbox
    executed: list[str] = []
    add_refusals(shop, executed)

    first = await client.post(f"/{path}", headers=K1)
    again = await client.post(f"/{path}", headers=K1)

    assert (first.status_code, again.status_code) == (status, status)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert executed == [path]
