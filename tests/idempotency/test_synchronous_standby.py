"""A command whose COMMIT waits for a synchronous standby: giving it up must not end the wait."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.idempotency.conftest import client_of
from tests.idempotency.shop import Shop, make_shop
from tests.support.database import Database, on
from tests.support.standby import CAREFUL, a_commit_waits, absent_standby, is_wanted
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")


@pytest.fixture
async def careful(database: Database) -> AsyncIterator[Shop]:
    """A shop whose commits wait for the standby, on a database where those of others do not."""
    given = CAREFUL[database.url.get_driver_name()]
    async with database.other_engine(connect_args=given) as engine:
        yield make_shop(engine)
    assert await is_wanted(database, "")


async def place(shop: Shop) -> httpx.Response:
    async with client_of(shop) as client:
        headers = {"Idempotency-Key": '"k-1"'}
        return await client.post("/orders", json={"id": "o-1"}, headers=headers)


async def place_until_answered(shop: Shop) -> httpx.Response:
    """Repeat what is still being executed: a commit lets go of its key after its wait has ended."""
    answers: list[httpx.Response] = []

    async def answered() -> bool:
        answers.append(await place(shop))
        return answers[-1].status_code != 409

    await until(answered, "the key is free")
    return answers[-1]


async def test_a_command_given_up_in_its_commit_goes_on_waiting_for_its_standby(
    database: Database, careful: Shop
) -> None:
    """A cancel request ended the wait: the retry got 201 for an order that one server alone had."""
    async with absent_standby(database):
        placing = asyncio.create_task(place(careful))
        await until(lambda: a_commit_waits(database), "the commit waits")
        placing.cancel()
        await asyncio.wait({placing})
        again = await place(careful)

        assert again.status_code == 409
        assert await a_commit_waits(database)
        assert await database.order_ids() == []

    await until(lambda: no_commit_waits(database), "it is committed")
    replayed = await place_until_answered(careful)

    assert (replayed.status_code, replayed.json()["id"]) == (201, "o-1")
    assert careful.executed == ["o-1"]
    assert await database.order_ids() == ["o-1"]


async def no_commit_waits(database: Database) -> bool:
    return not await a_commit_waits(database)
