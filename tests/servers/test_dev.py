import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pillarbox.servers import guardian
from tests.support.processes import alive

DEV = "from pillarbox.cli.dev import dev; dev()"
BARE = (
    "import pillarbox.servers.locate as l; "
    "l._WHEELS = l._POSTGRES_FOLDERS = l._MORE_PATH = (); " + DEV
)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A `pillarbox dev` that has printed its two settings."""

    process: subprocess.Popen[str]
    database: str
    bus: str
    family: tuple[int, ...]

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=30)
        return self.process.returncode, told


@contextmanager
def running(*arguments: str) -> Iterator[Terminal]:
    process = subprocess.Popen(
        [sys.executable, "-c", DEV, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        database = first.strip().removeprefix("export PILLARBOX_DATABASE_URL=")
        bus = second.strip().removeprefix("export PILLARBOX_BUS_URL=")
        yield Terminal(process, database, bus, tuple(guardian.descendants(process.pid)))
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_dev_prints_two_settings_and_ends_cleanly_on(ending: signal.Signals) -> None:
    with running() as terminal:
        assert re.fullmatch(r"postgresql://postgres@127\.0\.0\.1:\d+/pillarbox", terminal.database)
        assert re.fullmatch(r"nats://127\.0\.0\.1:\d+", terminal.bus)
        with psycopg.connect(terminal.database) as connection:
            connection.execute("SELECT 1")

        code, told = terminal.end(ending)

        assert code == 0
        assert "PostgreSQL 18" in told
        assert "Both servers are stopped." in told
        assert not alive(terminal.family)


def test_dev_keeps_data_and_ports_that_were_named() -> None:
    # Not under pytest's own folder, which other users than root cannot enter.
    data = Path(tempfile.mkdtemp(prefix="pillarbox-dev-test-"))
    data.chmod(0o755)
    try:
        with running("--data", str(data)) as terminal:
            port = terminal.database.split(":")[2].split("/")[0]
            with psycopg.connect(terminal.database) as connection:
                connection.execute("CREATE TABLE kept ()")
            terminal.end(signal.SIGINT)
        with running("--data", str(data), "--postgres-port", port) as terminal:
            assert f":{port}/" in terminal.database
            with psycopg.connect(terminal.database) as connection:
                connection.execute("SELECT * FROM kept")
            assert terminal.end(signal.SIGTERM)[0] == 0
    finally:
        shutil.rmtree(data)


def test_dev_names_what_to_type_when_a_wheel_is_missing() -> None:
    refused = subprocess.run(
        [sys.executable, "-c", BARE],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PATH": os.devnull},
    )

    assert refused.returncode == 1
    assert "pip install 'pillarbox[dev]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_dev_ends_with_an_error_when_a_server_ends_by_itself() -> None:
    with running() as terminal:
        with psycopg.connect(terminal.database) as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            postmaster = guardian.parents()[row[0]]
        os.kill(postmaster, signal.SIGKILL)

        _, told = terminal.process.communicate(timeout=30)

        assert terminal.process.returncode == 1
        kept = re.search(r"postgres18 ended by itself; its logs are kept in (\S+)", told)
        assert kept is not None
        shutil.rmtree(kept[1])
