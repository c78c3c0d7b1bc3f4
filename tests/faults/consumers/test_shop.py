"""The shop of the examples over every broker: as processes, over HTTP, killed and repeated."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from examples.demo import checker
from examples.demo.crew import Crew, subscribed
from examples.demo.customers import (
    SHELVES,
    STOCK,
    TENANTS,
    Accepted,
    Customers,
    Request,
    fill_stock,
)
from examples.demo.databases import databases
from examples.demo.figures import Looker
from examples.demo.run import RECEIVERS, SETTINGS, until_ready
from examples.demo.troubles import Troubles
from examples.shop.flows import CHOREOGRAPHY, SAGA
from pillarbox.servers import Postgres
from pillarbox.servers.ports import free_ports
from tests.faults.consumers.conftest import Brokers
from tests.faults.consumers.grounds import BROKERS, Ground, started
from tests.support.servers import require
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
REST_SECONDS = 120.0


@asynccontextmanager
async def ordering(customers: Customers) -> AsyncIterator[None]:
    """Let a customer of each tenant order for as long as the block runs."""
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for tenant in TENANTS:
            group.create_task(customers.order_on(tenant, random.Random(tenant), 0.1, ended))
        yield
        ended.set()


async def ordered(customers: Customers, product: str, quantity: int, total: str) -> tuple[str, str]:
    """Place one order, whose end is known beforehand."""
    body = {"user_id": "demo", "product_id": product, "quantity": quantity, "total_amount": total}
    request = Request("acme", "demo", uuid4().hex, "/api/orders", body)
    answer = await customers.client.post(request.path, json=body, headers=request.headers)
    customers.accepted.append(Accepted(request, answer.json()["order_id"]))
    return "acme", customers.accepted[-1].order_id


def end_of(books: checker.Books, place: tuple[str, str]) -> tuple[str, list[str], list[str]]:
    """Return how an order ended: its status, its reservations and its payments."""
    reserved = [row[4] for row in books.reserved if row[:2] == place]
    return books.orders[place], reserved, [row[2] for row in books.payments if row[:2] == place]


async def comes_to_rest(owners: dict[str, str]) -> None:
    looker = Looker(owners)

    async def at_rest() -> bool:
        return (await asyncio.to_thread(looker.look)).at_rest

    try:
        await until(at_rest, "every order has ended", REST_SECONDS)
    finally:
        looker.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the shop is opened, and who leads."""

    ground: Ground
    flow: str


@pytest.fixture(params=[*BROKERS, SAGA])
def place(request: pytest.FixtureRequest, brokers: Brokers) -> Iterator[Place]:
    if request.param != SAGA:
        yield Place(brokers.get([request.param])[0], CHOREOGRAPHY)
        return
    require(request.config, "nats")  # of its own: a saga would begin for the orders of the others
    ground = started("nats")
    yield Place(ground, SAGA)
    ground.server.stop()


async def test_every_order_ends_once_whoever_is_killed_and_whatever_comes_twice(
    place: Place, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, flow = place.ground, place.flow
    monkeypatch.setenv("PULSAR_ADMIN_URL", ground.admin)
    with databases(postgres.url) as made:
        ports = free_ports([*made])
        webs = ("orders", "inventory")
        crew = Crew(made, ground.server.url, ports, tmp_path, SETTINGS, webs, flow)
        with subscribed(crew.bus, postgres.url, flow):
            pass
        try:
            crew.start()
            await until_ready(crew)
            async with httpx.AsyncClient(base_url=crew.url("inventory"), timeout=30) as inventory:
                await fill_stock(inventory)
            async with httpx.AsyncClient(base_url=crew.url("orders"), timeout=30) as client:
                customers = Customers(client)
                troubles = Troubles(crew, customers, None, 0, print, random.Random(ground.name))
                async with ordering(customers):
                    good = await ordered(customers, "lamp", 1, "49.90")
                    sold_out = await ordered(customers, "rarity", STOCK["rarity"] + 1, "49.90")
                    refused = await ordered(customers, "lamp", 1, "1500.00")
                    await troubles.kill()
                    await troubles.repeat()
                owners = {name: found.owner for name, found in made.items()}
                await comes_to_rest(owners)
        finally:
            crew.stop()
        books = checker.read(owners)
        result = checker.check(books, customers.told(), SHELVES, RECEIVERS[flow])

    assert result.findings == checker.Findings()
    assert customers.strange == []
    assert end_of(books, good) == ("CONFIRMED", ["RESERVED"], ["PROCESSED"])
    assert end_of(books, sold_out) == ("REJECTED", [], [])
    assert end_of(books, refused) == ("REJECTED", ["RELEASED"], ["REFUSED"])
    assert (troubles.kills, troubles.repeated_messages) == (2, 20)
    assert result.events == result.delivered >= 4 * len(TENANTS)
    assert {part.process.returncode for part in crew.parts.values() if part.process} == {0}
