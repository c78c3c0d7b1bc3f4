"""Run a command in several processes: start them, pass signals on, replace those that die."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NoReturn

import click

_PAUSE: Final = 1.0
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM)


class Processes:
    """A few processes of one kind; they end when this one does, however it ends."""

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        self._command = [sys.executable, "-m", "pillarbox", *arguments]
        self._count = count
        self._running: list[subprocess.Popen[bytes]] = []
        self._ending = threading.Event()
        self._told: int | None = None
        self._reached: set[int] = set()

    def run(self) -> int:
        """Run until a signal, or until all have ended by themselves; return the exit code."""
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        for _ in range(self._count):
            if not self._ending.is_set():
                self._start()
        code = 0
        while self._running:
            for process in list(self._running):
                try:
                    ended = process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
                self._running.remove(process)
                code = max(code, self._after(process.pid, ended))
        return code

    def _after(self, pid: int, code: int) -> int:
        """Replace a process that died; one that ended well, or was told to, stays ended."""
        if self._ending.is_set() and -code in _PASSED_ON:
            return 0  # It had not begun: a process at work takes the signal and ends with 0.
        if code == 0 or self._ending.is_set():
            return abs(code)
        click.echo(f"process {pid} ended with {code}; another one is started", err=True)
        if not self._ending.wait(_PAUSE):
            self._start()
        return 0

    def _start(self) -> None:
        # Nobody writes to its input: when this process is gone, it reads the end of it and stops.
        process = subprocess.Popen(  # noqa: S603 - our own command
            self._command, stdin=subprocess.PIPE, start_new_session=True
        )
        self._running.append(process)
        if self._told is not None and process.pid not in self._reached:
            process.send_signal(self._told)  # it came while the process was being started

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._told = number
        self._ending.set()
        for process in self._running:
            if process.poll() is None:
                self._reached.add(process.pid)
                process.send_signal(number)


def run_in_processes(count: int) -> NoReturn:
    """Run this very command in several processes, and end with their exit code."""
    arguments = [item for item in sys.argv[1:] if not item.startswith("--processes=")]
    if "--processes" in arguments:
        place = arguments.index("--processes")
        del arguments[place : place + 2]
    raise click.exceptions.Exit(Processes([*arguments, "--with-parent"], count).run())


def stop_with_parent(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Stop when the process that started this one is gone."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        loop.call_soon_threadsafe(stop)

    threading.Thread(target=watch, daemon=True).start()
