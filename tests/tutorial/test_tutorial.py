"""The programs of the tutorial print what its pages say, on a real PostgreSQL and a real NATS."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import nats
import psycopg
import pytest
from sqlalchemy import MetaData, create_engine

from examples.tutorial.step0_naive.orders import Base as NaiveBase
from examples.tutorial.step1_record.orders import Base
from examples.tutorial.step6_tenant.migrate import ROLE
from pillarbox.database import sync_url
from pillarbox.schema import apply
from pillarbox.servers import Nats, Postgres

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "tutorial"
PAGES = ROOT / "docs" / "tutorial"
PAGE_OF = {
    "step0_naive": "naive.md",
    "step1_record": "record.md",
    "step2_deliver": "deliver.md",
    "step3_consume": "consume-once.md",
    "step4_read_model": "read-model.md",
    "step5_saga": "saga.md",
    "step6_tenant": "tenant.md",
}
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([\w-]+\.md)\)")

needs_servers = pytest.mark.servers("postgres18", "nats")


@dataclass(frozen=True, slots=True)
class Ground:
    """The two servers, as `pillarbox dev` gives them to a reader."""

    database: str
    bus: str

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PILLARBOX_DATABASE_URL": self.database,
            "PILLARBOX_BUS_URL": self.bus,
        }
        return subprocess.run(
            [sys.executable, "-m", f"examples.tutorial.{module}", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def make(self, tables: MetaData) -> None:
        """Make tables, empty."""
        engine = create_engine(sync_url(self.database))
        tables.drop_all(engine)
        tables.create_all(engine)
        engine.dispose()

    def ids(self, statement: str) -> list[str]:
        with psycopg.connect(self.database) as connection:
            return [row[0] for row in connection.execute(statement.encode())]

    async def messages(self, subject: str) -> list[str]:
        async with await nats.connect(self.bus) as broker:
            stream = broker.jetstream()
            name = await stream.find_stream_name_by_subject(subject)
            count = (await stream.stream_info(name)).state.messages
            found = await stream.subscribe(subject)
            return [(await found.next_msg(timeout=30)).data.decode() for _ in range(count)]


@pytest.fixture(scope="module")
def ground(postgres18: Postgres) -> Iterator[Ground]:
    name = f"tutorial_{uuid4().hex}"
    url = postgres18.create_database(name)
    engine = create_engine(sync_url(url))
    apply(engine)
    engine.dispose()
    with Nats() as broker:
        yield Ground(url, broker.url)
    postgres18.drop_database(name)
    with psycopg.connect(postgres18.url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {ROLE}".encode())


def page(step: str) -> str:
    return (PAGES / PAGE_OF[step]).read_text()


# The last step first: none finds what an earlier one would have made, but for events that wait.
BACKWARDS = ("step1_record", *list(PAGE_OF)[:1:-1])


@needs_servers
@pytest.mark.parametrize("step", BACKWARDS)
def test_a_step_runs_by_itself_and_prints_what_its_page_says(ground: Ground, step: str) -> None:
    ran = ground.run(step)

    assert ran.returncode == 0, ran.stderr
    assert f"```text\n{ran.stdout}```\n" in page(step), ran.stdout


@needs_servers
def test_a_step_runs_again_among_the_messages_of_the_others(ground: Ground) -> None:
    ran = ground.run("step3_consume")

    assert ran.returncode == 0, ran.stderr
    assert f"```text\n{ran.stdout}```\n" in page("step3_consume"), ran.stdout


@needs_servers
async def test_the_naive_program_loses_an_event_and_sends_a_false_one(ground: Ground) -> None:
    ran = ground.run("step0_naive")

    assert ran.returncode == 0, ran.stderr
    assert f"```text\n{ran.stdout}```\n" in page("step0_naive"), ran.stdout
    assert ground.ids("SELECT id FROM naive_orders ORDER BY id") == ["o-1", "o-2"]
    assert await ground.messages("naive.order") == ["o-1", "o-3"]


@needs_servers
def test_the_naive_process_is_killed_after_its_commit(ground: Ground) -> None:
    ground.make(NaiveBase.metadata)

    killed = ground.run("step0_naive.killed")

    assert killed.returncode == -signal.SIGKILL
    assert ground.ids("SELECT id FROM naive_orders") == ["o-2"]


@needs_servers
def test_an_event_is_recorded_by_a_process_that_is_killed_after_its_commit(ground: Ground) -> None:
    ground.make(Base.metadata)
    order_id = str(uuid4())

    killed = ground.run("step1_record.killed", order_id)

    assert killed.returncode == -signal.SIGKILL
    assert ground.ids("SELECT id FROM orders") == [order_id]
    assert order_id in ground.ids("SELECT key FROM outbox WHERE event_type = 'OrderPlaced'")


@pytest.mark.parametrize("step", PAGE_OF)
def test_the_code_of_a_page_is_the_code_that_runs(step: str) -> None:
    files = [found.read_text() for found in (PROGRAMS / step).glob("*.py")]

    blocks = _BLOCK.findall(page(step))

    assert blocks
    for block in blocks:
        assert any(block in file for file in files), block


def test_the_order_is_the_same_in_the_steps_that_share_its_table() -> None:
    texts = {found.read_text() for found in PROGRAMS.glob("step[1-5]_*/orders.py")}

    assert len(texts) == 1


def test_the_index_leads_through_all_steps_in_their_order() -> None:
    listed = _LINK.findall((PAGES / "index.md").read_text())

    assert listed == list(PAGE_OF.values())
    assert {found.name for found in PAGES.glob("*.md")} == {"index.md", *listed}
    assert sorted(found.name for found in PROGRAMS.glob("step*")) == list(PAGE_OF)
