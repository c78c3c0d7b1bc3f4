"""`pillarbox consumer run` is told to stop with a handler at work: what it has in hand is not lost."""

import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.servers import Nats
from pillarbox.testing.messages import message, new_topic
from tests.consumer.test_consumer_cli import running
from tests.support.database import Database, on
from tests.support.processes import until

pytestmark = on("postgres18+psycopg")

# A handler that tells when it is at work and waits to be let go, and a consumer that tells of signals.
PROGRAM = """
import asyncio
from pathlib import Path

from sqlalchemy import text

from pillarbox import Context, Pillarbox

box = Pillarbox.from_env(service="payments")
pay = box.consumer("{name}", topics=["{topic}"])
stop = pay.stop


def heard():
    stop()
    Path("heard").touch()


pay.stop = heard


@pay.on("OrderPaid")
async def charge(event: dict, ctx: Context) -> None:
    statement = text("INSERT INTO orders (id, total, status, version) VALUES ('o', 0, '', 1)")
    await ctx.session.execute(statement)
    Path("at-work").touch()
    while not Path("go-on").exists():
        await asyncio.sleep(0.01)
"""
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@dataclass(slots=True)
class Command:
    """Runs a consumer with one message in a folder of its own."""

    folder: Path
    environ: Mapping[str, str]
    reader: psycopg.Connection

    def count(self, table: str) -> int:
        (found,) = self.reader.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (0,)
        return int(found)

    @contextmanager
    def at_work(self, stop_timeout: float) -> Iterator[subprocess.Popen[str]]:
        """Run until the handler has the message."""
        limit = {"PILLARBOX_CONSUMER_STOP_TIMEOUT": str(stop_timeout)}
        for told in ("at-work", "heard"):
            (self.folder / told).unlink(missing_ok=True)
        with running(self.folder, {**self.environ, **limit}) as process:
            until((self.folder / "at-work").exists, "a handler at work", 40)
            yield process

    def tell(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        """Send a signal, and wait until it is heard."""
        process.send_signal(number)
        until((self.folder / "heard").exists, "the signal is heard", 20)

    def let_go(self) -> None:
        (self.folder / "go-on").touch()

    def gives_back(self, process: subprocess.Popen[str]) -> None:
        """Wait for the end, with exit code 0, and nothing left of the message that was in hand."""
        _, told = process.communicate(timeout=40)
        assert process.returncode == 0, told
        assert "messages_given_back messages=1" in told
        left = {table: self.count(table) for table in ("orders", "inbox", "inbox_attempt")}
        assert left == {"orders": 0, "inbox": 0, "inbox_attempt": 0}


@pytest.fixture
async def command(database: Database, nats_server: Nats, tmp_path: Path) -> AsyncIterator[Command]:
    topic = new_topic()
    (tmp_path / "pay.py").write_text(PROGRAM.format(name=topic.partition(".")[0], topic=topic))
    bus = NatsMessageBus(nats_server.url)
    await bus.start()
    await bus.apply([topic])
    assert await bus.publish([message(topic, 1)]) == [ACCEPTED]
    await bus.close()
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    environ = {"PILLARBOX_DATABASE_URL": url, "PILLARBOX_BUS_URL": nats_server.url}
    with psycopg.connect(url, autocommit=True) as reader:
        yield Command(tmp_path, environ, reader)


@BOTH
async def test_a_handler_at_work_comes_to_its_end(command: Command, number: signal.Signals) -> None:
    with command.at_work(stop_timeout=300) as process:
        command.tell(process, number)
        assert process.poll() is None
        command.let_go()
        _, told = process.communicate(timeout=40)

    assert process.returncode == 0, told
    assert "messages_given_back" not in told
    assert (command.count("orders"), command.count("inbox")) == (1, 1)


@BOTH
async def test_a_handler_that_hangs_is_waited_for_no_longer_than_said(
    command: Command, number: signal.Signals
) -> None:
    for again in (0, 1):  # what was delivered before is marked while it is in hand
        with command.at_work(stop_timeout=0.5) as process:
            assert command.count("inbox_attempt") == again
            command.tell(process, number)

            command.gives_back(process)


@BOTH
async def test_a_second_signal_does_not_wait_for_a_handler_that_hangs(
    command: Command, number: signal.Signals
) -> None:
    for again in (0, 1):
        with command.at_work(stop_timeout=300) as process:
            assert command.count("inbox_attempt") == again
            command.tell(process, number)
            assert process.poll() is None
            process.send_signal(number)

            command.gives_back(process)
