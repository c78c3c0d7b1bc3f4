"""One event has several receivers, and none of them waits for another."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest

from examples.demo.crew import Crew, subscribed
from examples.demo.databases import Database
from pillarbox.servers import Nats, Postgres
from pillarbox.servers.ports import free_ports
from tests.shop.conftest import HEADERS, SIMPLE, answers, key
from tests.support.processes import until


@pytest.fixture
def crews(
    shop_databases: Mapping[str, Database], postgres18: Postgres, tmp_path: Path
) -> Iterator[tuple[Crew, Crew]]:
    """The three services that lead an order to its end, and the one that tells of it."""
    told = {"notifications": shop_databases["notifications"]}
    others = {name: found for name, found in shop_databases.items() if name not in told}
    with Nats() as broker:
        with subscribed(broker.url, postgres18.url):
            pass
        ports = free_ports(["orders", "inventory", "payments", "notifications"])
        yield (
            Crew(others, broker.url, ports, tmp_path, webs=("orders",)),
            Crew(told, broker.url, ports, tmp_path, webs=()),
        )


@contextmanager
def at_work(crew: Crew) -> Iterator[None]:
    try:
        crew.start()
        yield
    finally:
        crew.stop()


def put_on_shelf(inventory: Database) -> None:
    statement = "INSERT INTO stock (tenant_id, product_id, available) VALUES (%s, %s, 9)"
    with psycopg.connect(inventory.owner) as connection:
        connection.execute(statement, [HEADERS["X-Tenant"], SIMPLE["product_id"]])


def notices(notifications: Database, order_id: str) -> list[str]:
    query = "SELECT kind FROM notification WHERE order_id = %s ORDER BY id"
    with psycopg.connect(notifications.owner) as connection:
        return [kind for (kind,) in connection.execute(query, [order_id]).fetchall()]


def is_confirmed(client: httpx.Client, order_id: str) -> bool:
    answer = client.get(f"/orders/{order_id}")
    return answer.is_success and answer.json()["status"] == "CONFIRMED"


@pytest.mark.servers("postgres18", "nats")
@pytest.mark.timeout(240)
def test_an_order_is_confirmed_while_nobody_tells_its_customer_who_is_told_later(
    crews: tuple[Crew, Crew], shop_databases: Mapping[str, Database]
) -> None:
    others, telling = crews
    url, notifications = others.url("orders"), shop_databases["notifications"]
    put_on_shelf(shop_databases["inventory"])

    with at_work(others), httpx.Client(base_url=url, headers=HEADERS, timeout=30) as client:
        until(partial(answers, url), "the order service answers", 60)
        made = client.post("/api/orders", json=SIMPLE, headers=key()).json()["order_id"]
        until(partial(is_confirmed, client, made), "the order is confirmed", 60)
        before = notices(notifications, made)
        with at_work(telling):
            until(lambda: len(notices(notifications, made)) > 1, "both notices are there", 60)

    assert before == []
    assert notices(notifications, made) == ["OrderCreated", "OrderConfirmed"]
