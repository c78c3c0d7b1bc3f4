"""Watch processes from outside."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pillarbox.servers import guardian


def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait for a condition and fail by name when it does not come."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def alive(pids: Iterable[int]) -> list[int]:
    """List those processes that still run."""
    running = guardian.parents()
    return [pid for pid in pids if pid in running]


@dataclass(frozen=True, slots=True)
class Script:
    """A Python process that has said its first line as JSON."""

    process: subprocess.Popen[str]
    said: dict[str, str]
    family: tuple[int, ...]

    def signal(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def say(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words)
        self.process.stdin.flush()

    def leaves_nothing(self) -> None:
        until(lambda: not alive(self.family), f"end of the processes {self.family}")
        until(lambda: not Path(self.said["folder"]).exists(), f"removal of {self.said['folder']}")


@contextmanager
def script(text: str) -> Iterator[Script]:
    """Run a script; its family is every process that it had started when it spoke."""
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        said = json.loads(_line(process.stdout))
        yield Script(process, said, tuple(guardian.descendants(process.pid)))
    finally:
        process.kill()
        process.wait(30)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()
