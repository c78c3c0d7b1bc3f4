"""A server of the weaker mode that is killed: what it promises, and the gap that it has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import update

from pillarbox.schema.tables import idempotency
from tests.idempotency.conftest import Make
from tests.idempotency.processes import server
from tests.idempotency.server import WEAK_POINTS, guarded
from tests.idempotency.shop import Shop
from tests.idempotency.test_kills import HEADERS, ORDER
from tests.support.database import Database, on

pytestmark = [pytest.mark.faults, on("postgres18+asyncpg", "sqlite+aiosqlite")]

PATH = "/plain/orders"
ANSWERED = {"after-record", "before-first-byte"}
IN_THE_GAP = {"after-claim", "before-record"}


@asynccontextmanager
async def client_of(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(guarded(shop), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


async def kill_at(database: Database, point: str) -> None:
    """Send the command to a server that dies there."""
    with server(database, point, "weak") as (process, address):
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            with pytest.raises(httpx.TransportError):
                await client.post(PATH, json=ORDER, headers=HEADERS)
        assert process.wait(30) == -9


async def let_the_lease_run_out(database: Database) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    async with database.engine.begin() as connection:
        await connection.execute(update(idempotency).values(lease_until=past))


@pytest.mark.parametrize("point", [p for p in WEAK_POINTS if p not in IN_THE_GAP])
async def test_outside_the_gap_a_repetition_executes_or_is_answered(
    database: Database, make: Make, point: str
) -> None:
    await kill_at(database, point)

    async with client_of(make()) as client:
        again = await client.post(PATH, json=ORDER, headers=HEADERS)

    assert (again.status_code, again.json()) == (201, ORDER)
    assert ("idempotency-replayed" in again.headers) is (point in ANSWERED)
    assert await database.event_types() == ["OrderPlaced"]


@pytest.mark.parametrize("point", sorted(IN_THE_GAP))
async def test_in_the_gap_a_repetition_is_held_off_until_the_lease_has_run_out(
    database: Database, make: Make, point: str
) -> None:
    await kill_at(database, point)

    async with client_of(make()) as client:
        answer = await client.post(PATH, json=ORDER, headers=HEADERS)

    assert (answer.status_code, answer.headers["retry-after"]) == (409, "1")


async def test_killed_before_the_handler_the_command_is_executed_after_the_lease(
    database: Database, make: Make
) -> None:
    await kill_at(database, "after-claim")
    await let_the_lease_run_out(database)

    async with client_of(make()) as client:
        again = await client.post(PATH, json=ORDER, headers=HEADERS)
        third = await client.post(PATH, json=ORDER, headers=HEADERS)

    assert (again.status_code, third.content) == (201, again.content)
    assert await database.event_types() == ["OrderPlaced"]


async def test_killed_after_the_handler_the_command_is_executed_again_which_the_strong_mode_never_does(
    database: Database, make: Make
) -> None:
    await kill_at(database, "before-record")
    assert await database.order_ids() == ["o-1"]
    await let_the_lease_run_out(database)
    shop: Shop = make()

    async with client_of(shop) as client:
        again = await client.post(PATH, json=ORDER, headers=HEADERS)

    assert shop.executed == ["o-1"]
    assert again.status_code == 500  # the order's own key is all that keeps it from a second effect
    assert await database.event_types() == ["OrderPlaced"]
