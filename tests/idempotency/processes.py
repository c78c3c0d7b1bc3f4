"""The shop, served by processes of their own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.database import Database

ROOT = Path(__file__).parents[2]


@contextmanager
def server(database: Database, *point: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the shop in a process of its own."""
    url = database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.idempotency.server", url, *point]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
