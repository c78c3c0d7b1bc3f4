"""The order service over HTTP, in a process of its own."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

from examples.demo.databases import Database
from pillarbox import SyncSqlAlchemyOutbox
from pillarbox.database import sync_url
from tests.shop.conftest import SIMPLE, key, orders_locked, waits
from tests.support.processes import until

WITH_ITEMS = {
    "user_id": "ada",
    "items": [
        {"product_id": "lamp", "quantity": 2, "price": "9.90"},
        {"product_id": "chair", "quantity": 1, "price": "40.00"},
    ],
}


def events_of(owner: psycopg.Connection, order_id: str) -> list[tuple[str, Any]]:
    statement = "SELECT event_type, payload FROM outbox WHERE aggregate_id = %s ORDER BY seq"
    return owner.execute(statement, [order_id]).fetchall()


def test_an_order_of_one_product_is_answered_with_its_state_and_recorded_with_its_event(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    answer = orders.post("/api/orders", json=SIMPLE, headers=key())

    made = answer.json()
    assert (answer.status_code, made["status"], made["total_amount"]) == (201, "CREATED", "19.80")
    [(kind, payload)] = events_of(owner, made["order_id"])
    assert kind == "OrderCreated"
    assert payload.pop("timestamp")
    assert payload == {
        "order_id": made["order_id"],
        "user_id": "ada",
        "product_id": "lamp",
        "quantity": 2,
        "items": [{"product_id": "lamp", "quantity": 2}],
        "total_amount": "19.80",
    }


def test_the_total_of_several_items_is_their_sum(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    made = orders.post("/orders", json=WITH_ITEMS, headers=key()).json()

    assert made["total_amount"] == "59.80"
    [(_, payload)] = events_of(owner, made["order_id"])
    assert [item["product_id"] for item in payload["items"]] == ["lamp", "chair"]


@pytest.mark.parametrize("path", ["/orders", "/api/orders"])
def test_a_bad_body_is_a_problem_that_names_the_field(orders: httpx.Client, path: str) -> None:
    answer = orders.post(path, json={"user_id": "ada"}, headers=key())

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Field required" in {each["detail"] for each in answer.json()["errors"]}


@pytest.mark.parametrize(("path", "body"), [("/orders", WITH_ITEMS), ("/api/orders", SIMPLE)])
def test_a_request_that_comes_twice_makes_one_order(
    orders: httpx.Client, owner: psycopg.Connection, path: str, body: dict[str, Any]
) -> None:
    headers = key()

    first, again = (orders.post(path, json=body, headers=headers) for _ in range(2))
    other = orders.post(path, json={**body, "user_id": "bob"}, headers=headers)

    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert len(events_of(owner, first.json()["order_id"])) == 1
    assert (other.status_code, other.headers["content-type"]) == (422, "application/problem+json")


def test_a_request_that_comes_again_while_the_first_is_at_work_is_told_so(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    headers = key()
    with ThreadPoolExecutor(1) as pool:
        with orders_locked(owner):
            first = pool.submit(orders.post, "/api/orders", json=SIMPLE, headers=headers)
            until(lambda: waits(owner), "the first waits for the table")
            again = orders.post("/api/orders", json=SIMPLE, headers=headers)
        answer = first.result(30)

    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    assert "retry-after" in again.headers
    assert answer.status_code == 201


def test_a_failure_is_a_problem_and_the_same_request_succeeds_later(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    headers = key()
    owner.execute("ALTER TABLE orders RENAME TO orders_away")
    try:
        failed = orders.post("/api/orders", json=SIMPLE, headers=headers)
    finally:
        owner.execute("ALTER TABLE orders_away RENAME TO orders")
    later = orders.post("/api/orders", json=SIMPLE, headers=headers)

    assert (failed.status_code, failed.headers["content-type"]) == (500, "application/problem+json")
    assert later.status_code == 201


def test_an_order_is_read_from_the_view_of_its_tenant_alone(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    owner.execute(
        "INSERT INTO order_view (tenant_id, order_id, user_id, total_amount, status) "
        "VALUES ('acme', 'o-1', 'ada', 5, 'CONFIRMED')"
    )

    found = orders.get("/orders/o-1")
    strange = orders.get("/orders/o-1", headers={"X-Tenant": "globex"})

    assert (found.status_code, found.json()["status"]) == (200, "CONFIRMED")
    assert strange.status_code == 404


def test_what_waits_is_listed_for_its_tenant_and_counted_for_all(
    orders: httpx.Client, owner: psycopg.Connection
) -> None:
    made = orders.post("/api/orders", json=SIMPLE, headers={**key(), "X-Tenant": "initech"}).json()

    listed = orders.get("/api/outbox/pending", headers={"X-Tenant": "initech"}).json()
    [(waiting,)] = owner.execute("SELECT count(*) FROM outbox").fetchall()

    assert [(each["aggregate_id"], each["status"]) for each in listed] == [
        (made["order_id"], "NEW")
    ]
    health = orders.get("/health").json()
    assert health == {"status": "healthy", "pending_outbox_events": waiting}
    assert orders.get("/health/ready").json()["checks"] == {"database": "ok"}


@contextmanager
def locked_out(owner: psycopg.Connection, url: str) -> Iterator[None]:
    """Keep the service out of its database."""
    role = sql.Identifier(str(make_url(url).username))
    owner.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(role))
    try:
        owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
            [make_url(url).username],
        )
        yield
    finally:
        owner.execute(sql.SQL("ALTER ROLE {} LOGIN").format(role))


def test_a_service_without_its_database_is_alive_and_not_ready(
    orders: httpx.Client, owner: psycopg.Connection, shop_databases: Mapping[str, Database]
) -> None:
    with locked_out(owner, shop_databases["orders"].service):
        alive, ready = orders.get("/health/live"), orders.get("/health/ready")
    again = orders.get("/health/ready")

    assert (alive.status_code, alive.json()["status"]) == (200, "ok")
    assert (ready.status_code, ready.json()["checks"]) == (503, {"database": "unreachable"})
    assert again.status_code == 200


def test_of_what_waits_the_oldest_fifty_are_listed_in_their_order(
    orders: httpx.Client, shop_databases: Mapping[str, Database]
) -> None:
    engine = create_engine(sync_url(shop_databases["orders"].owner), poolclass=NullPool)
    event: dict[str, Any] = {"event_type": "OrderArchived", "topic": "orders.order", "payload": {}}
    with engine.begin() as connection:
        outbox = SyncSqlAlchemyOutbox(connection, "umbrella", service="orders")
        recorded = [str(outbox.add(**event, key=f"o-{number}")) for number in range(51)]

    listed = orders.get("/api/outbox/pending", headers={"X-Tenant": "umbrella"}).json()

    assert [each["id"] for each in listed] == recorded[:50]


def test_an_event_that_a_script_recorded_over_a_plain_connection_waits_with_the_others(
    orders: httpx.Client, shop_databases: Mapping[str, Database]
) -> None:
    engine = create_engine(sync_url(shop_databases["orders"].owner), poolclass=NullPool)
    with engine.begin() as connection:
        outbox = SyncSqlAlchemyOutbox(connection, "hooli", service="orders")
        outbox.add(event_type="OrderArchived", topic="orders.order", key="o-1", payload={})

    listed = orders.get("/api/outbox/pending", headers={"X-Tenant": "hooli"}).json()

    assert [(each["event_type"], each["status"]) for each in listed] == [("OrderArchived", "NEW")]


@pytest.mark.parametrize("path", ["/orders", "/api/orders"])
def test_the_document_of_the_service_shows_the_key_and_the_problems(
    orders: httpx.Client, path: str
) -> None:
    command = orders.get("/openapi.json").json()["paths"][path]["post"]

    keys = [each for each in command["parameters"] if each["name"] == "Idempotency-Key"]
    assert [each["in"] for each in keys] == ["header"]
    for status in ("400", "409", "422"):
        assert "application/problem+json" in command["responses"][status]["content"]
