"""Several processes of one command: signals reach each of them, whenever they come."""

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox.cli.processes import Processes


class Child:
    """A process that ends when it is told to."""

    def __init__(self, pid: int) -> None:
        self.pid, self.told = pid, list[int]()

    def poll(self) -> int | None:
        return 0 if self.told else None

    def wait(self, seconds: float) -> int:
        if not self.told:
            raise subprocess.TimeoutExpired("child", seconds)
        return 0

    def send_signal(self, number: int) -> None:
        self.told.append(number)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [1, 2])
def test_a_signal_that_comes_while_processes_start_reaches_those_that_did(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    started: list[Child] = []

    def start(*_: Any, **__: Any) -> Child:
        started.append(Child(len(started)))
        if len(started) == number:
            signal.raise_signal(signal.SIGTERM)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)

    assert Processes(["projector", "run"], 3).run() == 0

    assert [child.told for child in started] == [[signal.SIGTERM]] * number
