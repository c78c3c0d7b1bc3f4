"""A web process of the order service, on a database of its own."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from examples.demo.crew import Part
from examples.demo.databases import Database, databases
from pillarbox.servers import Postgres
from pillarbox.servers.ports import free_ports
from tests.support.processes import until

HEADERS = {"X-Tenant": "acme", "X-User": "ada"}
SIMPLE = {"user_id": "ada", "product_id": "lamp", "quantity": 2, "total_amount": "19.80"}


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


@pytest.fixture(scope="module")
def shop_databases(postgres18: Postgres) -> Iterator[Mapping[str, Database]]:
    with databases(postgres18.url) as made:
        yield made


@pytest.fixture(scope="module")
def orders_url() -> str:
    return f"http://127.0.0.1:{free_ports(['orders'])['orders']}"


@pytest.fixture(scope="module")
def order_service(
    shop_databases: Mapping[str, Database],
    orders_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Part]:
    folder = tmp_path_factory.mktemp("shop")
    with serving({"orders": orders_url}, shop_databases, folder) as (part,):
        yield part


@contextmanager
def serving(
    urls: Mapping[str, str], found: Mapping[str, Database], folder: Path
) -> Iterator[Sequence[Part]]:
    """Run the web processes of services until the block ends."""
    parts = [web_process(service, found[service], url, folder) for service, url in urls.items()]
    try:
        for part in parts:
            part.start()
        for part, url in zip(parts, urls.values(), strict=True):
            until(partial(answers, url), f"{part.name} answers", 60)
        yield parts
    finally:
        for part in parts:
            part.tell(signal.SIGTERM)
        for part in parts:
            part.wait()


def web_process(service: str, found: Database, url: str, folder: Path) -> Part:
    environ = {
        "DATABASE_URL": found.service,
        "OPERATOR_DATABASE_URL": found.projector,
        "PORT": url.rpartition(":")[2],
    }
    return Part(service, "web", environ, folder / f"{service}.log")


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def orders(order_service: Part, orders_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=orders_url, headers=HEADERS, timeout=30) as client:
        yield client


@pytest.fixture
def owner(shop_databases: Mapping[str, Database]) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shop_databases["orders"].owner, autocommit=True) as connection:
        yield connection


@contextmanager
def orders_locked(owner: psycopg.Connection) -> Iterator[None]:
    """Let commands wait before they can write their order."""
    with owner.transaction():
        owner.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        yield


def waits(owner: psycopg.Connection) -> bool:
    found = owner.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall()
    return bool(found[0][0])
