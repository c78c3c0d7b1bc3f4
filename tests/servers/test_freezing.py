import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pillarbox.servers import guardian
from pillarbox.servers.custody import Command, Custody
from tests.support.processes import until

THREADS = 20
BUSY = f"""
import threading, time
def work():
    while True:
        time.sleep(0.0005)
for _ in range({THREADS}):
    threading.Thread(target=work).start()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")


@pytest.fixture
def custody() -> Iterator[Custody]:
    opened = Custody.open(
        "busy", account=None, folder=None, end_signal=signal.SIGKILL, end_seconds=10
    )
    yield opened
    opened.close()


def states(pid: int) -> list[str]:
    stats = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


def test_no_thread_of_a_frozen_server_goes_on(custody: Custody) -> None:
    pid = custody.spawn(Command([sys.executable, "-c", BUSY]), custody.folder / "log")
    until(lambda: len(states(pid)) > THREADS, "start of its threads")

    seen = []
    for _ in range(50):
        custody.signal(signal.SIGSTOP)
        seen += states(pid)
        custody.signal(signal.SIGCONT)

    assert set(seen) == {"T"}


def test_a_server_that_is_not_frozen_in_time_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed frozen for good: who freezes before a `try` has nobody to thaw it."""

    def too_late(condition: Callable[[], bool]) -> bool:
        until(condition, "it is frozen")
        return False

    with subprocess.Popen([sys.executable, "-c", BUSY]) as server:
        owner = guardian.Guardian(tmp_path, keep=True, end_signal=signal.SIGKILL, end_seconds=10)
        monkeypatch.setattr(owner, "_tree", lambda: [server.pid])
        monkeypatch.setattr(guardian, "_wait", too_late)
        try:
            said = owner.answer({"op": "signal", "signal": signal.SIGSTOP})
            until(lambda: "T" not in states(server.pid), "it goes on")
        finally:
            server.kill()

    assert said == {"error": "did not freeze within 10 s"}
