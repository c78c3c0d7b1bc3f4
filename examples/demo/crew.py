"""The shop's processes: start them, kill one and start it again, stop them all."""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from examples.demo.databases import Database
from examples.shop.flows import CHOREOGRAPHY, CONSUMERS

ROOT: Final = Path(__file__).parents[2]
STOP_SECONDS: Final = 40.0
MOST_MENDED: Final = 20
SUBSCRIBE_SECONDS: Final = 60.0
_FOLDERS: Final = {
    "orders": "order_service",
    "inventory": "inventory_service",
    "payments": "payment_service",
    "notifications": "notification_service",
}


class PartFailed(Exception):
    """A process of the shop ended though nobody asked it to."""


@dataclass(slots=True)
class Part:
    """One process of a service: its web server, its projector or its consumers."""

    service: str
    kind: str
    environ: Mapping[str, str]
    log: Path
    flow: str = CHOREOGRAPHY
    killed: int = 0
    mended: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"{self.service} {self.kind}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def gave_up(self) -> bool:
        """Whether it ended though nobody killed it."""
        code = None if self.process is None else self.process.poll()
        return code is not None and code != -signal.SIGKILL

    def start(self) -> None:
        command = [sys.executable, "-m", "examples.demo.child", *self._arguments()]
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        with self.log.open("ab") as log:
            self.process = self._spawned(command, log)

    def kill(self) -> None:
        """End it with -9, in the middle of whatever it does."""
        self.tell(signal.SIGKILL)
        self.wait()
        self.killed += 1

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        if self.process is not None:
            self.process.send_signal(number)

    def wait(self) -> None:
        """Wait until it has ended."""
        if self.process is not None and self.process.stdin is not None:
            self.process.wait(STOP_SECONDS)
            self.process.stdin.close()

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2_000:]

    def _spawned(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        # It has a session of its own: Ctrl-C is for the demo, which then stops its processes.
        return subprocess.Popen(  # noqa: S603 - our own command
            command,
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _arguments(self) -> list[str]:
        package = f"examples.shop.{_FOLDERS[self.service]}.app"
        if self.kind == "consumer":
            module = CONSUMERS[self.flow][self.service]
            return ["pillarbox", "consumer", "run", "--app", f"{module}:box", "--quiet"]
        return [f"{package}.{'main' if self.kind == 'web' else self.kind}"]


@dataclass(slots=True)
class Crew:
    """All processes of the shop."""

    databases: Mapping[str, Database]
    bus: str
    ports: Mapping[str, int]
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    webs: Collection[str] = tuple(_FOLDERS)
    flow: str = CHOREOGRAPHY
    parts: dict[str, Part] = field(default_factory=dict)

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for service in self.databases:
            for kind in self._kinds(service):
                part = self._part(service, kind)
                self.parts[part.name] = part
                part.start()

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def ended(self) -> list[Part]:
        """Return the processes that ended by themselves."""
        return [part for part in self.parts.values() if part.gave_up]

    def mend(self) -> list[Part]:
        """Start those again, as every supervisor does; give up on one that ends again and again.

        A consumer that is started while the broker is away ends and says so.
        """
        mended = self.ended()
        for part in mended:
            part.mended += 1
            if part.mended > MOST_MENDED:
                raise PartFailed(f"{part.name} ended {part.mended} times:\n{part.said()}")
            part.start()
        return mended

    def check(self) -> None:
        """Raise for a process that ended by itself."""
        for part in self.ended():
            raise PartFailed(f"{part.name} ended:\n{part.said()}")

    def stop(self) -> None:
        """Ask all to end, at the same time, and wait for them; a second signal would cut it short."""
        for part in self.parts.values():
            part.tell(signal.SIGTERM)
        for part in self.parts.values():
            part.wait()

    def _kinds(self, service: str) -> Iterator[str]:
        if service in self.webs:
            yield "web"
        yield "consumer"
        if service != "notifications":  # it publishes nothing
            yield "projector"
        if service == "orders":
            yield "read_model"

    def _part(self, service: str, kind: str) -> Part:
        found = self.databases[service]
        environ = {
            **os.environ,
            **self.settings,
            "PILLARBOX_BUS_URL": self.bus,
            "DATABASE_URL": found.service if kind in {"web", "consumer"} else found.projector,
            "OPERATOR_DATABASE_URL": found.projector,
            "PORT": str(self.ports[service]),
        }
        environ.pop("PILLARBOX_DATABASE_URL", None)
        return Part(service, kind, environ, self.folder / f"{service}-{kind}.log", self.flow)


@contextmanager
def subscribed(bus: str, database: str, flow: str = CHOREOGRAPHY) -> Iterator[None]:
    """Tell the broker of the shop's topics and consumers, beside whatever is done meanwhile."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "examples.shop.subscribe", flow],
        cwd=ROOT,
        env={**os.environ, "PILLARBOX_BUS_URL": bus, "DATABASE_URL": database},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        _, said = process.communicate(timeout=SUBSCRIBE_SECONDS)
    if process.returncode:
        raise PartFailed(f"the broker could not be prepared: {said.strip().splitlines()[-1]}")
