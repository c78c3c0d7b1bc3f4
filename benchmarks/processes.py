"""Run the sides of a suite in processes of their own, and watch what they use."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped] # it has no types

ROOT: Final = Path(__file__).parent.parent
LIMIT: Final = 900.0
STOP_LIMIT: Final = 60.0


class Child:
    """A running side; it has said that it is ready."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self._process = process
        self._watched = psutil.Process(process.pid)
        self.ready = ready
        self.said: dict[str, Any] = {}

    @property
    def memory(self) -> float:
        """The resident memory, in MB."""
        return float(self._watched.memory_info().rss) / 1e6

    @property
    def cpu_seconds(self) -> float:
        """The processor time that the process has used so far."""
        used = self._watched.cpu_times()
        return float(used.user + used.system)

    async def stop(self) -> None:
        """End the side and keep what it says at its end."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        self.said = await _last_line(self._process, STOP_LIMIT)


async def run_side(name: str, *arguments: object) -> dict[str, Any]:
    """Run a side to its end and return what it says."""
    return await _last_line(await _start(name, *arguments), LIMIT)


@asynccontextmanager
async def running_side(name: str, *arguments: object) -> AsyncIterator[Child]:
    """Run a side while the block lasts; `child.said` has its last words after `stop`."""
    process = await _start(name, *arguments)
    try:
        child = Child(process, await _line(process, STOP_LIMIT))
        yield child
        if not child.said:
            await child.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _start(name: str, *arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"benchmarks.sides.{name}",
        *map(str, arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )


async def _line(process: asyncio.subprocess.Process, limit: float) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(limit):
        line = await process.stdout.readline()
    if not line:
        raise AssertionError(f"a side ended with {await process.wait()} and said nothing")
    found: dict[str, Any] = json.loads(line)
    return found


async def _last_line(process: asyncio.subprocess.Process, limit: float) -> dict[str, Any]:
    try:
        async with asyncio.timeout(limit):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    if process.returncode or not out:
        raise AssertionError(f"a side ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found
