"""What no service can do is the fault of whoever asks for it: 400, and never 500."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from examples.demo.databases import SERVICES, Database
from pillarbox.servers.ports import free_ports
from tests.shop.conftest import serving

NUL, ALONE = "a\0b", "\ud800"
ITEM = {"product_id": "lamp", "quantity": 1, "price": "9.90"}
ORDER = {"user_id": "ada", "items": [ITEM]}
SIMPLE = {"user_id": "ada", "product_id": "lamp", "quantity": 1, "total_amount": "9.90"}


@pytest.fixture(scope="module")
def urls(
    shop_databases: Mapping[str, Database], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """The four services, by name."""
    ports = free_ports([*SERVICES])
    found = {service: f"http://127.0.0.1:{port}" for service, port in ports.items()}
    with serving(found, shop_databases, tmp_path_factory.mktemp("shop")):
        yield found


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client with patience for a busy machine."""
    with httpx.Client(timeout=30) as made:
        yield made


def refused(answer: httpx.Response) -> bool:
    kind = answer.headers["content-type"]
    return (answer.status_code, kind) == (400, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(
            "/orders",
            {**ORDER, "items": [{**ITEM, "quantity": 1_000, "price": "9999999999.99"}]},
            id="a-total-that-no-column-holds",
        ),
        pytest.param("/orders", {**ORDER, "user_id": NUL}, id="nul-in-the-user"),
        pytest.param("/orders", {**ORDER, "user_id": ALONE}, id="half-a-character"),
        pytest.param(
            "/orders", {**ORDER, "items": [{**ITEM, "product_id": NUL}]}, id="nul-in-items"
        ),
        pytest.param("/api/orders", {**SIMPLE, "user_id": NUL}, id="nul-in-the-simple-user"),
        pytest.param("/api/orders", {**SIMPLE, "product_id": NUL}, id="nul-in-the-product"),
    ],
)
def test_an_order_that_no_database_can_hold_is_refused(
    urls: Mapping[str, str], client: httpx.Client, path: str, body: Mapping[str, Any]
) -> None:
    content = json.dumps(body)  # httpx itself would stumble over half a character
    headers = {"Content-Type": "application/json"}

    assert refused(client.post(urls["orders"] + path, content=content, headers=headers))


@pytest.mark.parametrize("headers", [{"X-Tenant": "t" * 65}, {"X-Tenant": "a b"}, {"X-User": ""}])
def test_whoever_cannot_be_is_refused(
    urls: Mapping[str, str], client: httpx.Client, headers: Mapping[str, str]
) -> None:
    known = {**headers, "Idempotency-Key": "first"}

    assert refused(client.post(f"{urls['orders']}/orders", json=ORDER, headers=known))


@pytest.mark.parametrize(
    ("product", "available"),
    [(NUL, 1), ("p" * 65, 1), ("lamp", 2**31), ("lamp", -1)],
)
def test_stock_that_no_shelf_can_hold_is_refused(
    urls: Mapping[str, str], client: httpx.Client, product: str, available: int
) -> None:
    url = f"{urls['inventory']}/stock/{quote(product)}"

    assert refused(client.put(url, json={"available": available}))


@pytest.mark.parametrize(
    ("service", "path"),
    [
        ("orders", "/orders"),
        ("inventory", "/stock"),
        ("payments", "/payments"),
        ("notifications", "/notifications"),
    ],
)
def test_a_question_for_what_cannot_be_there_is_refused(
    urls: Mapping[str, str], client: httpx.Client, service: str, path: str
) -> None:
    assert refused(client.get(f"{urls[service]}{path}/{quote(NUL)}"))
