"""Commands through the route class: one effect and one answer for each key."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from fastapi import APIRouter

from pillarbox.errors import InvalidConfig
from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER, keys
from tests.idempotency.shop import Shop
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


async def test_a_repeated_command_takes_effect_once_and_gets_the_same_answer(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    first = await client.post("/orders", json=ORDER, headers=K1)
    again = await client.post("/orders", json=ORDER, headers={"Idempotency-Key": "k-1"})

    assert (first.status_code, first.json()) == (201, ORDER)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["cache-control"] == first.headers["cache-control"] == "no-store"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert "idempotency-replayed" not in first.headers
    assert shop.executed == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_the_same_handler_serves_with_and_without_the_route(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    with_route = await client.post("/orders", json=ORDER, headers=K1)
    without = await client.post("/plain/orders", json=ORDER | {"id": "o-2"}, headers=K1)
    no_key = await client.post("/orders", json=ORDER | {"id": "o-3"})

    assert [r.status_code for r in (with_route, without, no_key)] == [201, 201, 201]
    assert await database.order_ids() == ["o-1", "o-2", "o-3"]
    assert await database.event_types() == ["OrderPlaced"] * 3
    assert await keys(database) == 1


async def test_a_second_request_while_the_first_runs_does_not_wait(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    first = asyncio.create_task(client.post("/slow", json=ORDER, headers=K1))
    await shop.entered.wait()

    second = await asyncio.wait_for(client.post("/slow", json=ORDER, headers=K1), 30)
    shop.proceed.set()
    answered = await first
    third = await client.post("/slow", json=ORDER, headers=K1)

    assert (second.status_code, second.headers["retry-after"]) == (409, "1")
    assert second.headers["content-type"] == "application/problem+json"
    assert second.json()["type"].endswith("command-in-progress")
    assert (answered.status_code, third.content) == (201, answered.content)
    assert shop.executed == ["o-1"]


async def test_of_many_equal_requests_at_once_one_executes(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    requests = [client.post("/orders", json=ORDER, headers=K1) for _ in range(8)]

    answers = await asyncio.gather(*requests)

    statuses = {answer.status_code for answer in answers}
    assert 201 in statuses
    assert statuses <= {201, 409}
    assert shop.executed == ["o-1"]
    assert await database.event_types() == ["OrderPlaced"]


async def test_a_request_whose_client_is_gone_leaves_nothing_or_all(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    first = asyncio.create_task(client.post("/slow", json=ORDER, headers=K1))
    await shop.entered.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shop.proceed.set()

    again = await client.post("/slow", json=ORDER, headers=K1)

    assert again.status_code == 201
    assert "idempotency-replayed" not in again.headers
    assert await database.event_types() == ["OrderPlaced"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/orders/o-1", ORDER | {"total": 8}),
        ("PUT", "/orders/o-2", ORDER),
        ("PUT", "/orders/o-1?fast=1", ORDER),
    ],
    ids=["body", "path", "query"],
)
async def test_a_key_with_another_request_of_the_operation_is_refused(
    database: Database,
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: dict[str, object],
) -> None:
    await client.put("/orders/o-1", json=ORDER, headers=K1)

    other = await client.request(method, path, json=body, headers=K1)

    assert other.status_code == 422
    assert other.json()["type"].endswith("idempotency-key-reused")
    assert await database.order_ids() == ["o-1"]


async def test_another_operation_and_another_prefix_are_independent(
    database: Database, client: httpx.AsyncClient
) -> None:
    answers = [
        await client.post("/orders", json=ORDER, headers=K1),
        await client.put("/orders/o-2", json=ORDER | {"id": "o-2"}, headers=K1),
        await client.post("/v2/orders", json=ORDER | {"id": "o-3"}, headers=K1),
    ]

    assert [answer.status_code for answer in answers] == [201, 200, 201]
    assert await keys(database) == 3


async def test_another_principal_executes_and_never_sees_the_first_answer(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    await client.post("/rolled-back", json=ORDER, headers=K1)
    async with client_of(shop, "bob") as bob:
        answer = await bob.post("/rolled-back", json=ORDER, headers=K1)

    assert "idempotency-replayed" not in answer.headers
    assert shop.executed == ["o-1", "o-1"]


async def test_authorisation_runs_before_a_replay(shop: Shop, client: httpx.AsyncClient) -> None:
    await client.post("/orders", json=ORDER, headers=K1)
    shop.revoked.add("ada")

    refused = await client.post("/orders", json=ORDER, headers=K1)
    anonymous = await client.post("/orders", json=ORDER, headers=K1 | {"X-User": ""})

    assert (refused.status_code, anonymous.status_code) == (403, 401)
    assert "o-1" not in refused.text


async def test_reading_needs_no_key_and_takes_none(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    for _ in range(2):
        assert (await client.get("/orders/o-1", headers=K1)).status_code == 200

    assert shop.executed == ["o-1", "o-1"]
    assert await keys(database) == 0


async def test_a_command_without_the_key_it_needs_is_refused(make: Make) -> None:
    shop = make(required=True)
    async with client_of(shop) as client:
        missing = await client.post("/orders", json=ORDER)
        reading = await client.get("/orders/o-1")

    assert missing.status_code == 400
    assert missing.json()["type"].endswith("idempotency-key-missing")
    assert reading.status_code == 200


@pytest.mark.parametrize("header", ["", '""', "x" * 256, "two words", '"open'])
async def test_a_malformed_key_is_refused(
    shop: Shop, client: httpx.AsyncClient, header: str
) -> None:
    answer = await client.post("/orders", json=ORDER, headers={"Idempotency-Key": header})

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert shop.executed == []


async def test_several_keys_are_refused(shop: Shop, client: httpx.AsyncClient) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]

    answer = await client.post("/orders", json=ORDER, headers=headers)

    assert answer.status_code == 400
    assert shop.executed == []


async def test_a_large_request_is_refused_before_it_is_read(make: Make) -> None:
    shop = make(request_limit=100)
    async with client_of(shop) as client:
        declared = await client.post("/orders", json=ORDER | {"x": "x" * 100}, headers=K1)

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 10

        streamed = await client.post("/orders", content=parts(), headers=K1)

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert shop.executed == []


async def test_the_header_stands_in_the_openapi_document(make: Make) -> None:
    document = make(required=True, ttl=timedelta(hours=2)).app.openapi()

    post = document["paths"]["/orders"]["post"]
    (header,) = [p for p in post["parameters"] if p["name"] == "Idempotency-Key"]
    assert (header["in"], header["required"]) == ("header", True)
    assert "2 h" in header["description"]
    assert {"400", "409", "429"} <= set(post["responses"])
    reading = document["paths"]["/orders/{order_id}"]["get"]["parameters"]
    assert "Idempotency-Key" not in [p["name"] for p in reading]


async def test_a_streaming_endpoint_is_refused_at_the_start(shop: Shop) -> None:
    router = APIRouter(route_class=shop.box.idempotent_route(principal=lambda _: "ada"))

    async def stream() -> AsyncIterator[bytes]:
        yield b""

    with pytest.raises(InvalidConfig, match="streams"):
        router.post("/stream")(stream)
