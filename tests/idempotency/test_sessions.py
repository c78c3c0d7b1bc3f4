"""Handlers that write by a session, and handlers that roll back: one transaction all the same."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends
from sqlalchemy import column, func, insert, select, table, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import SQLAlchemyUnitOfWork
from tests.idempotency.conftest import client_of
from tests.idempotency.shop import NewOrder, Shop, place_order
from tests.support.database import Database, on
from tests.support.orders import Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")

ORDER = {"id": "o-1", "total": 7}
K1 = {"Idempotency-Key": "k-1"}


def add_routes(shop: Shop) -> None:
    """Add endpoints that use the session dependency, alone and beside a unit of work."""
    box = shop.box
    Held = Annotated[AsyncSession, Depends(box.session)]  # noqa: N806 - a type
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]  # noqa: N806 - a type
    router = APIRouter(
        prefix="/held", route_class=box.idempotent_route(principal=lambda r: r.headers["x-user"])
    )

    async def reader(held: Held) -> int:
        return (await held.execute(select(func.count()).select_from(Order))).scalar_one()

    async def untidy(held: Held) -> None:
        held.add(Order.place("o-untidy"))
        await held.flush()

    @router.post("/committed")
    async def committed(body: NewOrder, held: Held) -> str:
        shop.executed.append(body.id)
        held.add(Order.place(body.id))
        await held.commit()
        return body.id

    @router.post("/forgotten")
    async def forgotten(body: NewOrder, held: Held) -> str:
        shop.executed.append(body.id)
        held.add(Order.place(body.id))
        await held.flush()
        return body.id

    @router.post("/fails")
    async def fails(body: NewOrder, held: Held) -> str:
        held.add(Order.place(body.id))
        await held.commit()
        raise ZeroDivisionError

    @router.post("/beside")
    async def beside(body: NewOrder, seen: Annotated[int, Depends(reader)], uow: Uow) -> int:
        await place_order(uow, body)
        return seen

    @router.post("/untidy", dependencies=[Depends(untidy)])
    async def after_untidy(body: NewOrder) -> str:
        shop.executed.append(body.id)
        return body.id

    @router.post("/second-try")
    async def second_try(body: NewOrder) -> str:
        """Fall back to another id when the first is taken, as handlers do."""
        try:
            async with box.unit_of_work() as uow:
                await uow.session.execute(insert(Order).values(id="o-taken", version=1))
                await uow.commit()
        except IntegrityError:
            async with box.unit_of_work() as uow:
                await place_order(uow, body)
        return body.id

    add_dependencies(shop, router)
    add_rollbacks(shop, router)
    shop.app.include_router(router)


def add_dependencies(shop: Shop, router: APIRouter) -> None:
    """Add endpoints behind dependencies whose units of work are undone."""
    box = shop.box
    Held = Annotated[AsyncSession, Depends(box.session)]  # noqa: N806 - a type
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]  # noqa: N806 - a type

    async def chooser(held: Held) -> None:
        chosen = text("status IN ('NEW', 'OLD') AND (total > 0 OR length(status) > 1)")
        await held.scalars(select(func.replace(Order.id, "a", "b")).where(chosen))

    @router.post("/chosen", dependencies=[Depends(chooser)])
    async def chosen(body: NewOrder, uow: Uow) -> str:
        await place_order(uow, body)
        return body.id

    async def known() -> None:
        """Insert what may be there already, as dependencies do that get or create."""
        with suppress(IntegrityError):
            async with box.unit_of_work() as uow:
                await uow.session.execute(insert(Order).values(id="o-known", version=1))
                await uow.commit()

    async def undecided() -> None:
        async with box.unit_of_work() as uow:
            await uow.repository(Order).save(Order.place("o-undecided"))
            await uow.session.flush()
            await uow.rollback()

    @router.post("/known", dependencies=[Depends(known)])
    async def after_known(body: NewOrder, uow: Uow) -> str:
        shop.executed.append(body.id)
        await place_order(uow, body)
        return body.id

    async def missed() -> None:
        with suppress(DBAPIError):
            async with box.unit_of_work() as uow:
                await uow.session.execute(select(table("no_such_table", column("id"))))

    @router.post("/missed", dependencies=[Depends(missed)])
    async def after_missed(body: NewOrder, uow: Uow) -> str:
        await place_order(uow, body)
        return body.id

    @router.post("/undecided", dependencies=[Depends(undecided)])
    async def after_undecided(body: NewOrder) -> str:
        shop.executed.append(body.id)
        return body.id


def add_rollbacks(shop: Shop, router: APIRouter) -> None:
    """Add endpoints that roll back, most of them what they have not written."""
    Held = Annotated[AsyncSession, Depends(shop.box.session)]  # noqa: N806 - a type
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(shop.box.uow)]  # noqa: N806 - a type

    @router.post("/sold-out")
    async def sold_out(body: NewOrder, uow: Uow) -> str:
        await uow.session.scalars(select(Order.id))
        await uow.rollback()
        return body.id

    @router.post("/sold-out-held")
    async def sold_out_held(body: NewOrder, held: Held) -> str:
        await held.scalars(select(Order.id))
        await held.rollback()
        return body.id

    @router.post("/afresh")
    async def afresh(body: NewOrder, held: Held) -> str:
        """Commit what nobody has begun, so as to begin anew; then think better of it."""
        shop.executed.append(body.id)
        await held.commit()
        held.add(Order.place(body.id))
        await held.flush()
        await held.rollback()
        return body.id


@pytest.fixture
async def held(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    add_routes(shop)
    async with client_of(shop) as client:
        yield client


async def test_a_session_of_the_application_commits_with_the_answer(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    first = await held.post("/held/committed", json=ORDER, headers=K1)
    again = await held.post("/held/committed", json=ORDER, headers=K1)

    assert (first.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_what_a_session_has_committed_is_undone_with_the_command(
    database: Database, held: httpx.AsyncClient
) -> None:
    answer = await held.post("/held/fails", json=ORDER, headers=K1)

    assert answer.status_code == 500
    assert await database.order_ids() == []
    assert await database.event_types() == []


async def test_what_a_session_has_not_committed_is_undone_and_the_answer_stands(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    for _ in range(2):
        answer = await held.post("/held/forgotten", json=ORDER, headers=K1)

    assert answer.headers["idempotency-replayed"] == "true"
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_a_dependency_that_reads_and_an_endpoint_that_writes_are_one_transaction(
    database: Database, held: httpx.AsyncClient
) -> None:
    first = await held.post("/held/beside", json=ORDER, headers=K1)
    again = await held.post("/held/beside", json=ORDER, headers=K1)

    assert (first.status_code, first.json()) == (200, 0)
    assert again.headers["idempotency-replayed"] == "true"
    assert await database.order_ids() == ["o-1"]


async def test_a_dependency_that_reads_with_brackets_in_a_text_reads(
    database: Database, held: httpx.AsyncClient
) -> None:
    """It passed for a writer, whatever stood in them, and every try was a 500."""
    first = await held.post("/held/chosen", json=ORDER, headers=K1)
    again = await held.post("/held/chosen", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert await database.order_ids() == ["o-1"]


async def test_a_dependency_that_leaves_its_writing_uncommitted_takes_no_claim_with_it(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    first = await held.post("/held/untidy", json=ORDER, headers=K1)
    again = await held.post("/held/untidy", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_a_dependency_whose_insert_is_refused_takes_no_claim_with_it(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    """The claim passed for undone with the dependency, met its own row, and was a 409 for ever."""
    async with database.sessions() as session:
        session.add(Order(id="o-known"))
        await session.commit()

    first = await held.post("/held/known", json=ORDER, headers=K1)
    again = await held.post("/held/known", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == ["o-1", "o-known"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_dependency_that_rolls_back_takes_no_claim_with_it(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    first = await held.post("/held/undecided", json=ORDER, headers=K1)
    again = await held.post("/held/undecided", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_a_dependency_whose_select_fails_takes_no_claim_with_it(
    database: Database, held: httpx.AsyncClient
) -> None:
    """It left the transaction aborted, and every try was a 500."""
    first = await held.post("/held/missed", json=ORDER, headers=K1)
    again = await held.post("/held/missed", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert await database.order_ids() == ["o-1"]


@pytest.mark.parametrize("path", ["sold-out", "sold-out-held"])
async def test_a_handler_that_reads_and_rolls_back_keeps_its_claim(
    held: httpx.AsyncClient, path: str
) -> None:
    """The claim went with it unnoticed, and every try was a 500."""
    first = await held.post(f"/held/{path}", json=ORDER, headers=K1)
    again = await held.post(f"/held/{path}", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")


async def test_a_rollback_after_a_commit_of_nothing_keeps_the_claim(
    database: Database, shop: Shop, held: httpx.AsyncClient
) -> None:
    """It passed for a commit: the claim went with it unnoticed, and every try was a 500."""
    first = await held.post("/held/afresh", json=ORDER, headers=K1)
    again = await held.post("/held/afresh", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_without_a_key_the_session_is_the_applications_own(
    database: Database, held: httpx.AsyncClient
) -> None:
    await held.post("/held/committed", json=ORDER)

    assert await database.order_ids() == ["o-1"]


async def test_after_a_refused_first_try_the_key_is_claimed_again(
    database: Database, held: httpx.AsyncClient
) -> None:
    async with database.sessions() as session:
        session.add(Order(id="o-taken"))
        await session.commit()

    first = await held.post("/held/second-try", json=ORDER, headers=K1)
    again = await held.post("/held/second-try", json=ORDER, headers=K1)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert await database.order_ids() == ["o-1", "o-taken"]
    assert await database.scalar("SELECT count(*) FROM idempotency") == 1
