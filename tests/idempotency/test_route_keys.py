"""How long the route keeps keys, and how many."""

import httpx

from tests.idempotency.conftest import Make, client_of
from tests.idempotency.keys import K1, ORDER, expire, key, keys, seed, store_of
from tests.idempotency.shop import Shop
from tests.support.database import Database, on

pytestmark = on("postgres18+asyncpg", "postgres18+psycopg", "sqlite+aiosqlite")


async def test_a_key_serves_again_when_its_time_is_over(
    database: Database, shop: Shop, client: httpx.AsyncClient
) -> None:
    await client.post("/rolled-back", json=ORDER, headers=K1)
    await expire(database)

    other = await client.post("/rolled-back", json=ORDER | {"total": 9}, headers=K1)

    assert "idempotency-replayed" not in other.headers
    assert shop.executed == ["o-1", "o-1"]
    assert await keys(database) == 1


async def test_random_keys_beyond_the_quota_are_refused_so_that_the_table_stays_bounded(
    database: Database, make: Make
) -> None:
    shop = make(quota=1_000)
    await seed(database, 980)
    async with client_of(shop, "mallory") as client:
        answers = [await client.post("/rolled-back", json=ORDER, headers=key(n)) for n in range(40)]
    async with client_of(shop, "ada") as client:
        other = await client.post("/orders", json=ORDER, headers=K1)

    assert [answer.status_code for answer in answers] == [409] * 20 + [429] * 20
    assert answers[-1].json()["type"].endswith("too-many-keys")
    assert other.status_code == 201
    assert await keys(database) == 1_001


async def test_over_the_quota_old_keys_are_still_answered(database: Database, make: Make) -> None:
    shop = make(quota=1)
    async with client_of(shop) as client:
        first = await client.post("/orders", json=ORDER, headers=K1)
        again = await client.post("/orders", json=ORDER, headers=K1)
        beyond = await client.post("/orders", json=ORDER, headers=key(2))

    assert (again.content, beyond.status_code) == (first.content, 429)


async def test_expired_rows_go_in_bounded_batches(database: Database, shop: Shop) -> None:
    await seed(database, 250)
    await expire(database)
    await seed(database, 5, user="eve")

    deleted: list[int] = []
    store = store_of(shop)
    while not deleted or deleted[-1]:
        async with database.engine.begin() as connection:
            deleted.append(await connection.run_sync(store.forget_expired, 100))

    assert deleted == [100, 100, 50, 0]
    assert await keys(database) == 5
