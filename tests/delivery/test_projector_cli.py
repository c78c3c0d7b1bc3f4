"""`pillarbox projector run`: a process or several, until nothing is left or a signal comes."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.servers import Nats, guardian
from pillarbox.testing.messages import new_topic
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.processes import alive, until

pytestmark = on("postgres18+psycopg")

KEYS = [f"key-{n}" for n in range(30)]
# A bus that tells of the first message and never answers, and a projector that tells of signals.
SILENT = """
import asyncio
import os
from pathlib import Path

from pillarbox import MemoryMessageBus, OutboxProjector, Pillarbox

stop = OutboxProjector.stop


def heard(projector):
    stop(projector)
    Path(f"heard-{{os.getpid()}}").touch()


class Silent(MemoryMessageBus):
    async def publish(self, batch, *, one_by_one=False):
        Path("asked").touch()
        await asyncio.Event().wait()


OutboxProjector.stop = heard
box = Pillarbox("{database}", Silent(), service="shop")
"""
OWNERS = "SELECT count(DISTINCT member_id) FROM outbox_lease WHERE member_id IS NOT NULL"
MEMBERS = "SELECT count(*) FROM outbox_member"
LEFT = "SELECT count(*) FROM outbox WHERE status <> 'SENT'"

# Shards move from one process to another with the renewals of their leases, which takes seconds.
TWO = pytest.mark.faults


@dataclass(slots=True)
class Command:
    """Runs the command in a folder of its own, on the shop's database."""

    folder: Path
    environ: Mapping[str, str]
    reader: psycopg.Connection
    topic: str

    def count(self, query: str) -> int:
        (found,) = self.reader.execute(query.encode()).fetchone() or (0,)
        return int(found)

    def heard(self) -> int:
        """Count the processes that have heard a signal."""
        return len([*self.folder.glob("heard-*")])

    @contextmanager
    def running(self, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pillarbox", "projector", "run", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=30)

    def leaves_nothing(self, process: subprocess.Popen[str], family: tuple[int, ...]) -> str:
        """Wait for the end, with exit code 0 and no lease or member left; return what was said."""
        _, told = process.communicate(timeout=40)
        assert process.returncode == 0, told
        assert (self.count(OWNERS), self.count(MEMBERS)) == (0, 0), told
        until(lambda: not alive(family), f"end of the processes {family}")
        return told


@pytest.fixture
async def command(shop: Shop, nats_server: Nats, tmp_path: Path) -> AsyncIterator[Command]:
    """The command with a topic of its own."""
    url = shop.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    (tmp_path / "silent.py").write_text(SILENT.format(database=url))
    topic = new_topic()
    bus = NatsMessageBus(nats_server.url)
    await bus.start()
    await bus.apply([topic])
    await bus.close()
    environ = {"PILLARBOX_DATABASE_URL": url, "PILLARBOX_BUS_URL": nats_server.url}
    with psycopg.connect(url, autocommit=True) as reader:
        yield Command(tmp_path, environ, reader, topic)


@pytest.mark.parametrize(
    ("number", "processes"),
    [
        (signal.SIGTERM, 1),
        (signal.SIGINT, 1),
        pytest.param(signal.SIGTERM, 2, marks=TWO),
        pytest.param(signal.SIGINT, 2, marks=TWO),
    ],
)
async def test_events_are_sent_until_a_signal_comes(
    shop: Shop, command: Command, number: signal.Signals, processes: int
) -> None:
    with command.running("--quiet", "--processes", str(processes)) as process:
        until(lambda: command.count(OWNERS) == processes, f"{processes} with leases", 40)
        await shop.add_together(*KEYS, topic=command.topic)
        until(lambda: command.count(LEFT) == 0, "all events sent", 40)
        family = tuple(guardian.descendants(process.pid))
        process.send_signal(number)

        command.leaves_nothing(process, family)


@pytest.mark.parametrize(("mode", "most"), [("drain", 30), ("once", 16)])
async def test_a_run_that_ends_by_itself_says_how_many_were_sent(
    shop: Shop, command: Command, mode: str, most: int
) -> None:
    await shop.add_together(*["a"] * 30, topic=command.topic)

    with command.running("--mode", mode, PILLARBOX_PROJECTOR_BATCH_SIZE="16") as process:
        said, told = process.communicate(timeout=40)

    sent = len(KEYS) - command.count(LEFT)
    assert (process.returncode, said) == (0, f"events_sent={sent}\n"), told
    assert most / 2 < sent <= most
    assert (command.count(OWNERS), command.count(MEMBERS)) == (0, 0)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=TWO)])
async def test_a_second_signal_does_not_wait_for_answers(
    shop: Shop, command: Command, processes: int
) -> None:
    await shop.add("a")
    arguments = ("--app", "silent:box", "--processes", str(processes))

    with command.running(*arguments, PILLARBOX_PROJECTOR_STOP_TIMEOUT="300") as process:
        until((command.folder / "asked").exists, "a message without an answer", 40)
        until(lambda: command.count(OWNERS) == processes, f"{processes} with leases", 40)
        family = tuple(guardian.descendants(process.pid))
        process.send_signal(signal.SIGTERM)
        until(lambda: command.heard() == processes, "the first signal is heard", 20)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)

        told = command.leaves_nothing(process, family)
    assert told.count("stopped_with_events_in_hand") == 1
    assert command.count(LEFT) == 1


async def test_a_stop_does_not_wait_for_answers_for_ever(shop: Shop, command: Command) -> None:
    await shop.add("a")

    with command.running("--app", "silent:box", PILLARBOX_PROJECTOR_STOP_TIMEOUT="0.5") as process:
        until((command.folder / "asked").exists, "a message without an answer", 40)
        process.send_signal(signal.SIGTERM)

        told = command.leaves_nothing(process, ())
    assert "stopped_with_events_in_hand" in told
    assert command.count(LEFT) == 1
