import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Nats

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "first_program.py"
MOST_LINES = 25


def run(url: str, bus: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PILLARBOX_DATABASE_URL": url, "PILLARBOX_BUS_URL": bus}
    return subprocess.run(
        [sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False
    )


def migrate(url: str) -> None:
    engine = create_engine(sync_url(url))
    apply(engine)
    engine.dispose()


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_readme_shows_the_program_byte_for_byte_and_no_other() -> None:
    assert python_blocks(ROOT / "README.md") == [PROGRAM.read_text()]


def test_the_program_is_short() -> None:
    assert len(PROGRAM.read_text().splitlines()) <= MOST_LINES


@pytest.fixture
def nats() -> Iterator[Nats]:
    """A broker without the messages of other tests."""
    with Nats() as server:
        yield server


@pytest.mark.servers("nats")
def test_the_program_prints_the_event_that_it_received(empty_url: str, nats: Nats) -> None:
    migrate(empty_url)

    ran = run(empty_url, nats.url)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == 'orders.order OrderPlaced {"order_id":"o-1"}\n'
    assert ran.stdout in (ROOT / "README.md").read_text()
    with psycopg.connect(empty_url) as connection:
        rows = connection.execute("SELECT status, topic, key FROM outbox_live").fetchall()
        assert rows == [("SENT", "orders.order", "o-1")]


def test_the_program_says_what_to_do_when_the_tables_are_missing(empty_url: str) -> None:
    ran = run(empty_url, "nats://127.0.0.1:1")

    assert ran.returncode != 0
    assert "run `pillarbox schema apply`" in ran.stderr
