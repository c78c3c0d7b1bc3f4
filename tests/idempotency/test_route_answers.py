"""Which answers the route keeps, and which leave the key free."""

import httpx
import pytest

from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER, keys
from tests.idempotency.shop import Shop
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


async def test_a_request_that_is_invalid_takes_no_key(
    database: Database, client: httpx.AsyncClient
) -> None:
    invalid = await client.post("/orders", json={}, headers=K1)
    valid = await client.post("/orders", json=ORDER, headers=K1)

    assert (invalid.status_code, valid.status_code) == (422, 201)


@pytest.mark.parametrize(
    ("kind", "status"), [("http-404", 404), ("domain", 409), ("empty", 204), ("plain", 200)]
)
async def test_refusals_of_the_handler_are_answers_too(
    database: Database, shop: Shop, client: httpx.AsyncClient, kind: str, status: int
) -> None:
    first = await client.post(f"/answers/{kind}", json=ORDER, headers=K1)
    again = await client.post(f"/answers/{kind}", json=ORDER, headers=K1)

    assert (first.status_code, again.status_code) == (status, status)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == [kind]
    assert await database.order_ids() == ["o-1"]


@pytest.mark.parametrize("kind", ["raises", "http-500"])
async def test_a_server_error_undoes_the_command_and_a_repetition_executes(
    database: Database, shop: Shop, client: httpx.AsyncClient, kind: str
) -> None:
    for _ in range(2):
        answer = await client.post(f"/answers/{kind}", json=ORDER, headers=K1)
        assert answer.status_code == 500

    assert shop.executed == [kind, kind]
    assert await database.order_ids() == []
    assert await keys(database) == 0


async def test_a_server_error_is_kept_on_demand(database: Database, make: Make) -> None:
    shop = make(keep_server_errors=True)
    async with client_of(shop) as client:
        for _ in range(2):
            answer = await client.post("/answers/http-500", json=ORDER, headers=K1)

    assert (answer.status_code, shop.executed) == (500, ["http-500"])
    assert await database.order_ids() == ["o-1"]


@pytest.mark.parametrize("kind", ["large", "stream"])
async def test_an_answer_that_is_not_kept_is_given_once_and_executed_once(
    database: Database, shop: Shop, client: httpx.AsyncClient, kind: str
) -> None:
    first = await client.post(f"/answers/{kind}", json=ORDER, headers=K1)
    again = await client.post(f"/answers/{kind}", json=ORDER, headers=K1)

    assert first.status_code == 201
    assert len(first.content) in {300_000, 6}
    assert again.status_code == 409
    assert again.json()["type"].endswith("answer-not-kept")
    assert shop.executed == [kind]


async def test_cookies_and_credentials_are_neither_stored_nor_repeated(
    database: Database, client: httpx.AsyncClient
) -> None:
    first = await client.post("/answers/cookies", json=ORDER, headers=K1)
    again = await client.post("/answers/cookies", json=ORDER, headers=K1)

    assert first.headers["set-cookie"] == "session=planted-secret"
    assert "set-cookie" not in again.headers
    assert again.headers["location"] == "/orders/o-1"
    stored = await database.scalar("SELECT CAST(headers AS text) FROM idempotency")
    assert "planted-secret" not in stored


async def test_a_handler_that_rolls_back_has_its_answer_recorded(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    first = await client.post("/rolled-back", json=ORDER, headers=K1)
    again = await client.post("/rolled-back", json=ORDER, headers=K1)

    assert (first.status_code, again.content) == (409, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.executed == ["o-1"]
    assert await database.order_ids() == []


async def test_an_endpoint_without_async_is_served_in_its_thread(
    shop: Shop, client: httpx.AsyncClient
) -> None:
    for _ in range(2):
        answer = await client.post("/sync", json=ORDER, headers=K1)
        assert answer.json() == "o-1"

    assert shop.executed == ["o-1"]
