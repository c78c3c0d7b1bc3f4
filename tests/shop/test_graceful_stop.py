"""A service that is stopped finishes what it has begun, and takes no longer than it may."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest

from examples.demo.crew import ROOT
from examples.demo.databases import Database
from pillarbox.servers.ports import free_ports
from tests.shop.conftest import (
    HEADERS,
    SIMPLE,
    answers,
    key,
    orders_locked,
    serving,
    waits,
    web_process,
)
from tests.support.processes import until

IMPATIENT = """
from examples.shop.common.web import serve
from examples.shop.order_service.app.main import app
serve(app, drain_seconds=1)
"""
LONGEST = 15.0

either_signal = pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name
)


@pytest.fixture
def url() -> str:
    return f"http://127.0.0.1:{free_ports(['orders'])['orders']}"


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers=HEADERS, timeout=60) as made:
        yield made


@contextmanager
def impatient(found: Database, url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the order service with one second for requests at work."""
    part = web_process("orders", found, url, folder)
    with part.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", IMPATIENT], cwd=ROOT, env=part.environ, stdout=log, stderr=log
        )
    try:
        until(partial(answers, url), f"{part.name} answers", 60)
        yield process
    finally:
        process.kill()
        process.wait(30)


def traces(owner: psycopg.Connection) -> tuple[int, ...]:
    """Count what requests leave behind."""
    statement = """SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox),
        (SELECT count(*) FROM idempotency)"""
    [found] = owner.execute(statement).fetchall()
    return found


@either_signal
def test_a_service_that_is_stopped_finishes_its_requests(
    number: signal.Signals,
    shop_databases: Mapping[str, Database],
    url: str,
    client: httpx.Client,
    owner: psycopg.Connection,
    tmp_path: Path,
) -> None:
    with (
        serving({"orders": url}, shop_databases, tmp_path) as (part,),
        ThreadPoolExecutor(1) as pool,
    ):
        assert part.process is not None
        with orders_locked(owner):
            answer = pool.submit(client.post, "/api/orders", json=SIMPLE, headers=key())
            until(lambda: waits(owner), "the request waits for the table")
            part.tell(number)
            until(lambda: not answers(url), "nothing new is taken")
        finished = answer.result(30)
        code = part.process.wait(30)

    assert (finished.status_code, code) == (201, 0), part.said()


@either_signal
def test_a_request_that_takes_longer_than_the_limit_is_given_up_and_leaves_nothing(
    number: signal.Signals,
    shop_databases: Mapping[str, Database],
    url: str,
    client: httpx.Client,
    owner: psycopg.Connection,
    tmp_path: Path,
) -> None:
    before = traces(owner)
    with (
        impatient(shop_databases["orders"], url, tmp_path) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        with orders_locked(owner):
            answer = pool.submit(client.post, "/api/orders", json=SIMPLE, headers=key())
            until(lambda: waits(owner), "the request waits for the table")
            begun = time.monotonic()
            process.send_signal(number)
            code = process.wait(60)
            took = time.monotonic() - begun
        given = answer.result(30)

    assert took < LONGEST
    assert (given.status_code, code) == (500, 0)
    assert traces(owner) == before
