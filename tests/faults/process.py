"""A process of the rig: a projector, a workload, a consumer."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, Self

END_SECONDS: Final = 20.0
_TAIL: Final = 3_000
# They are forked from a process that has imported everything and done nothing: to start each by
# itself would take most of the time of a drill.
_FORKS: Final = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "pytest",
        "tests.faults.consumers.order_process",
        "tests.faults.consumers.publisher_process",
        "tests.faults.projector_process",
        "tests.faults.workload",
        *(f"pillarbox.bus.{name}" for name in ("kafka", "nats", "pulsar", "rabbitmq", "redis")),
    ]
)


@dataclass(slots=True)
class Process:
    """A process of the rig, with what it said."""

    name: str
    process: ForkServerProcess
    output: Path
    trace: Path

    @classmethod
    def start(cls, name: str, module: str, words: Sequence[str], folder: Path) -> Self:
        """Call the main function of a module with these words of a command line."""
        output, trace = folder / f"{name}.log", folder / f"{name}.jsonl"
        output.touch()
        trace.touch()
        process = _FORKS.Process(target=_run, args=(module, words, output), name=name, daemon=True)
        process.start()
        return cls(name, process, output, trace)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Wait for the end; return the exit code, or the number of the signal below zero."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"runs after {seconds} s: {self.said()}"
        return self.process.exitcode

    def lines(self, step: str) -> int:
        """Count the lines of the trace that tell of a step."""
        return self.trace.read_text("utf-8").count(f'"step": "{step}"')

    def killed_at(self, point: str) -> int:
        """Count the lines of the trace that tell of an end at a point."""
        return self.trace.read_text("utf-8").count(f'"step": "killed", "point": "{point}"')

    def said(self) -> str:
        """Show the ends of its output and of its trace, for a failure's message."""
        texts = [path.read_text("utf-8")[-_TAIL:] for path in (self.output, self.trace)]
        return f"{self.name} ({self.process.exitcode}):\n" + "\n".join(texts)

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text("utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"{self.name} is gone")


def _run(module: str, words: Sequence[str], output: Path) -> None:
    with output.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    sys.exit(importlib.import_module(module).main(words))
