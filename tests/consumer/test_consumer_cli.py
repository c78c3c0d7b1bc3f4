"""`pillarbox consumer run`: the program of a service, in one process and in several."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.cli.main import main
from pillarbox.servers import Nats, guardian
from pillarbox.testing.messages import message, new_topic
from tests.support.database import Database, on
from tests.support.processes import alive, until

PROGRAM = """
from sqlalchemy import text

from pillarbox import Context, Pillarbox

box = Pillarbox.from_env(service="payments")
pay = box.consumer("{name}", topics=["{topic}"])
idle = box.consumer("{name}-idle", topics=["{topic}"], ignore_unknown=True)


@pay.on("OrderPaid")
async def charge(event: dict, ctx: Context) -> None:
    row = {{"id": f"{name}-{{event['n']}}"}}
    statement = text("INSERT INTO orders (id, total, status, version) VALUES (:id, 0, '', 1)")
    await ctx.session.execute(statement, row)
"""
COUNT = "SELECT count(*) FROM orders WHERE id LIKE %s"


@pytest.fixture
def program(tmp_path: Path) -> tuple[Path, str]:
    """A module with two consumers, and its topic."""
    topic = new_topic()
    name = topic.partition(".")[0]
    (tmp_path / "pay.py").write_text(PROGRAM.format(name=name, topic=topic))
    return tmp_path, topic


@contextmanager
def running(
    folder: Path, environ: dict[str, str], *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pillarbox", "consumer", "run", "--app", "pay:box"]
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()


@on("postgres18+psycopg")
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")])
async def test_messages_are_handled_until_a_signal_comes(
    database: Database, nats_server: Nats, program: tuple[Path, str], arguments: tuple[str, ...]
) -> None:
    folder, topic = program
    plain_url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    environ = {"PILLARBOX_DATABASE_URL": plain_url, "PILLARBOX_BUS_URL": nats_server.url}
    bus = NatsMessageBus(nats_server.url)
    await bus.start()
    await bus.apply([topic])
    assert await bus.publish([message(topic, n) for n in range(20)]) == [ACCEPTED] * 20
    await bus.close()

    with (
        psycopg.connect(plain_url, autocommit=True) as reader,
        running(folder, environ, "--consumer", topic.partition(".")[0], *arguments) as process,
    ):
        pattern = [f"{topic.partition('.')[0]}-%"]
        until(
            lambda: reader.execute(COUNT, pattern).fetchone() == (20,),
            "twenty rows",
            seconds=40,
        )
        family = tuple(guardian.descendants(process.pid))
        process.send_signal(signal.SIGTERM)

        assert process.wait(40) == 0, process.stderr and process.stderr.read()
        until(lambda: not alive(family), f"end of the processes {family}")


def run(app: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["consumer", "run", "--app", app, *arguments])


def test_what_cannot_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'from pillarbox import Pillarbox\nbox = Pillarbox("sqlite://", "memory://")\n'
    (tmp_path / "without_consumers.py").write_text(text)
    (tmp_path / "with_consumer.py").write_text(text + 'box.consumer("pay", topics=["t"])\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    lacking = run("without_consumers:box")
    unknown = run("with_consumer:box", "--consumer", "play")
    missing = run("with_consumer:box")

    assert [result.exit_code for result in (lacking, unknown, missing)] == [1, 1, 1]
    assert "names a Pillarbox without consumers; make one with box.consumer" in lacking.output
    assert "--consumer 'play' is unknown; use one of pay" in unknown.output
    assert "run `pillarbox schema apply`" in missing.output


@on("postgres18+psycopg")
async def test_a_broker_that_nobody_reaches_is_one_line(
    database: Database, program: tuple[Path, str]
) -> None:
    folder, _ = program
    plain_url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    environ = {"PILLARBOX_DATABASE_URL": plain_url, "PILLARBOX_BUS_URL": "nats://127.0.0.1:1"}

    with running(folder, environ, "--quiet") as process:
        _, told = process.communicate(timeout=40)

    assert process.returncode == 1
    assert "Error: [bus-unreachable]" in told.splitlines()[-1]
    assert "Traceback" not in told
