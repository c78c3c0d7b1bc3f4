"""The event of a command is written with its answer: one statement, and nobody can tell."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.errors import DuplicateEventId
from pillarbox.idempotency import command
from pillarbox.outbox.postponed import PostponedEvent
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.shop import NewOrder, Shop, place_order
from tests.support.database import Database, on
from tests.support.orders import Noted, Order

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg")

ORDER = {"id": "o-1", "total": 7}
K1 = {"Idempotency-Key": "k-1"}
MINE = UUID("01900000-0000-7000-8000-000000000001")
COUNT = text("SELECT count(*) FROM outbox")
REFUSING = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
    "CREATE TRIGGER refusing BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()",
)
TAKING_AGAIN = ("DROP TRIGGER refusing ON outbox", "DROP FUNCTION refuse()")


def add_routes(shop: Shop) -> None:
    """Add endpoints that go on after their unit of work was armed."""
    box = shop.box
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]  # noqa: N806 - a type
    router = APIRouter(
        prefix="/then", route_class=box.idempotent_route(principal=lambda r: r.headers["x-user"])
    )

    @router.post("/look")
    async def look(body: NewOrder, uow: Uow) -> int:
        await place_order(uow, body)
        async with box.unit_of_work() as other:
            found: int = (await other.session.execute(COUNT)).scalar_one()
            return found

    @router.post("/another")
    async def another(body: NewOrder, uow: Uow) -> str:
        await place_order(uow, body)
        async with box.unit_of_work() as other:
            await other.outbox.add(Noted("second"))
            await other.commit()
        return body.id

    @router.post("/another-undone")
    async def another_undone(body: NewOrder, uow: Uow) -> str:
        await place_order(uow, body)
        async with box.unit_of_work() as other:
            await other.repository(Order).save(Order.place("o-2"))
            await other.session.flush()
            await other.rollback()
        return body.id

    @router.post("/own-id")
    async def own_id(body: NewOrder, uow: Uow) -> str:
        await uow.outbox.add(Noted(body.id), event_id=MINE)
        try:
            await uow.commit()
        except DuplicateEventId as error:
            raise HTTPException(409, error.code) from error
        return body.id

    @router.post("/caught")
    async def caught(body: NewOrder, uow: Uow) -> str:
        with suppress(ZeroDivisionError):
            await place_order(uow, body)
        return body.id

    async def audited() -> None:
        async with box.unit_of_work() as uow:
            await uow.outbox.add(Noted("asked"))
            await uow.commit()

    @router.post("/audited", dependencies=[Depends(audited)])
    async def after_audit(body: NewOrder) -> str:
        return body.id

    add_odd_routes(shop, router)
    shop.app.include_router(router)


def add_odd_routes(shop: Shop, router: APIRouter) -> None:
    """Add endpoints that hide something from the unit of work."""
    box = shop.box
    Uow = Annotated[SQLAlchemyUnitOfWork, Depends(box.uow)]  # noqa: N806 - a type

    @router.post("/inside-a-savepoint")
    async def inside_a_savepoint(body: NewOrder, uow: Uow) -> str:
        connection = await uow.session.connection()
        savepoint = await connection.begin_nested()
        await place_order(uow, body)
        await savepoint.rollback()
        return body.id

    @router.post("/swallowed")
    async def swallowed(body: NewOrder, uow: Uow) -> str:
        await place_order(uow, body)
        with suppress(ZeroDivisionError):
            async with box.unit_of_work() as other:
                await other.session.execute(COUNT)
        return body.id


@pytest.fixture
async def then(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    add_routes(shop)
    async with client_of(shop) as client:
        yield client


@contextmanager
def statements(shop: Shop) -> Iterator[list[str]]:
    """Note the statements that write to the outbox or to the keys' table."""
    seen: list[str] = []

    def note(connection: Connection, cursor: object, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        if "INSERT INTO outbox" in statement or "UPDATE idempotency" in statement:
            seen.append(statement)

    engine = shop.box.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


@asynccontextmanager
async def an_outbox_that_refuses(database: Database) -> AsyncIterator[None]:
    await do(database, REFUSING)
    try:
        yield
    finally:
        await do(database, TAKING_AGAIN)


async def do(database: Database, statements: tuple[str, ...]) -> None:
    async with database.engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def test_answer_and_event_are_one_statement(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    with statements(shop) as seen:
        answer = await client.post("/orders", json=ORDER, headers=K1)

    assert answer.status_code == 201
    assert len(seen) == 1
    assert await database.event_types() == ["OrderPlaced"]
    assert await database.scalar("SELECT state FROM idempotency") == "done"


async def test_several_events_are_written_by_the_unit_of_work_in_their_order(
    database: Database, shop: Shop, then: httpx.AsyncClient
) -> None:
    answer = await then.post("/then/another", json=ORDER, headers=K1)

    assert answer.status_code == 200
    assert await database.event_types() == ["OrderPlaced", "Noted"]


async def test_a_later_unit_of_work_sees_the_event(
    database: Database, then: httpx.AsyncClient
) -> None:
    answer = await then.post("/then/look", json=ORDER, headers=K1)

    assert (answer.status_code, answer.json()) == (200, 1)
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_later_unit_of_work_that_is_undone_leaves_the_event(
    database: Database, then: httpx.AsyncClient
) -> None:
    answer = await then.post("/then/another-undone", json=ORDER, headers=K1)

    assert answer.status_code == 200
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_an_id_of_the_callers_own_is_judged_in_the_handler(
    database: Database, then: httpx.AsyncClient
) -> None:
    first = await then.post("/then/own-id", json=ORDER, headers=K1)
    other = await then.post(
        "/then/own-id", json=ORDER | {"id": "o-2"}, headers={"Idempotency-Key": "k-2"}
    )

    assert (first.status_code, other.status_code) == (200, 409)
    assert other.json() == {"detail": DuplicateEventId.code}
    assert await database.event_types() == ["Noted"]


async def test_an_event_of_a_dependency_stays_also_when_the_answer_is_repeated(
    database: Database, then: httpx.AsyncClient
) -> None:
    for _ in range(2):
        answer = await then.post("/then/audited", json=ORDER, headers=K1)
        assert answer.status_code == 200

    assert answer.headers["idempotency-replayed"] == "true"
    assert await database.event_types() == ["Noted", "Noted"]


async def test_a_command_that_fails_after_its_commit_has_no_event(
    database: Database, client: httpx.AsyncClient
) -> None:
    answer = await client.post("/answers/raises", json=ORDER, headers=K1)

    assert answer.status_code == 500
    assert await database.order_ids() == []
    assert await database.event_types() == []


async def test_a_unit_of_work_whose_commit_fails_takes_its_event_with_it(
    database: Database, shop: Shop, then: httpx.AsyncClient
) -> None:
    def refuse(session: Session) -> None:
        raise ZeroDivisionError

    shop.box.session_factory.kw["sync_session_class"] = refusing = type("S", (Session,), {})
    event.listen(refusing, "before_commit", refuse)  # after ours, which has postponed the event
    answer = await then.post("/then/caught", json=ORDER, headers=K1)

    assert answer.status_code == 200
    assert await database.scalar("SELECT state FROM idempotency") == "done"
    assert await database.order_ids() == []
    assert await database.event_types() == []


async def test_an_event_that_the_database_refuses_is_a_problem_and_commits_nothing(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    async with an_outbox_that_refuses(database):
        answer = await client.post("/orders", json=ORDER, headers=K1)
    kept = await database.scalar("SELECT count(*) FROM idempotency")
    again = await client.post("/orders", json=ORDER, headers=K1)

    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("command-not-committed")
    assert (kept, again.status_code) == (0, 201)
    assert shop.executed == ["o-1", "o-1"]
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_an_event_that_could_not_be_written_in_between_is_not_forgotten(
    database: Database, then: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = PostponedEvent.write
    tries: list[PostponedEvent] = []

    def write_at_second_try(event: PostponedEvent, connection: Connection) -> None:
        tries.append(event)
        if len(tries) == 1:
            raise ZeroDivisionError
        write(event, connection)

    monkeypatch.setattr(PostponedEvent, "write", write_at_second_try)
    answer = await then.post("/then/swallowed", json=ORDER, headers=K1)

    assert answer.status_code == 200
    assert await database.order_ids() == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_an_event_goes_with_the_savepoint_that_the_handler_has_made_around_it(
    database: Database, then: httpx.AsyncClient
) -> None:
    answer = await then.post("/then/inside-a-savepoint", json=ORDER, headers=K1)

    assert answer.status_code == 200
    assert await database.order_ids() == []
    assert await database.event_types() == []


async def test_an_engine_without_transactions_is_refused_before_the_key_is_claimed(
    database: Database, make: Make
) -> None:
    shop = make()
    shop.box.engine.sync_engine.update_execution_options(isolation_level="AUTOCOMMIT")
    async with client_of(shop) as client:
        answer = await client.post("/orders", json=ORDER, headers=K1)

    assert answer.status_code == 500
    assert shop.executed == []
    assert await database.scalar("SELECT count(*) FROM idempotency") == 0


async def test_a_rollback_that_is_cancelled_gives_the_connection_back(
    shop: Shop, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled(driver: object) -> None:
        raise asyncio.CancelledError

    await client.post("/orders", json=ORDER, headers=K1)
    monkeypatch.setattr(command, "roll_back", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await client.post("/orders", json=ORDER, headers=K1)

    pool: Any = shop.box.engine.pool
    assert pool.checkedout() == 0
