"""What all servers share: start, prove it is ours, kill, freeze, restart with data, stop."""

import re
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from pillarbox.servers.account import Account
from pillarbox.servers.custody import Command, Custody
from pillarbox.servers.errors import ServerFailed
from pillarbox.servers.ports import free_ports, is_free

_PORT_TRIES: Final = 5
_RETRY_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.02
_PORT_TAKEN: Final = re.compile(
    r"address (already )?in use|eaddrinuse|failed to bind", re.IGNORECASE
)
_TAIL: Final = 2000
_KEPT: Final = ("*.log", "*.conf", "*.ini", "*.properties")


class _EndedEarly(Exception):
    """A server ended before it was ready."""


class Server(ABC):
    """A real server of our own, on free loopback ports, with a fresh data folder.

    Every call blocks and is bounded. The server ends with `stop`, at the end of a `with` block, and
    with this process, however that ends; its folder is removed then, unless the caller named it.

        with Postgres(version=18) as postgres:
            connect(postgres.url)
    """

    name: str
    port_names: ClassVar[tuple[str, ...]] = ("client",)
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    # What a server without a future gets: no need to be kind when the data go as well.
    end_signal: ClassVar[signal.Signals] = signal.SIGKILL
    ready_seconds: ClassVar[float] = 30.0
    restart_seconds: ClassVar[float] = 15.0
    stop_seconds: ClassVar[float] = 20.0

    def __init__(
        self, *, folder: Path | None = None, ports: Mapping[str, int] | None = None
    ) -> None:
        self.version = ""
        self._kept_folder = folder
        self._fixed_ports = dict(ports or {})
        self._ports: dict[str, int] = {}
        self._custody: Custody | None = None
        self._pid: int | None = None
        self._log_start = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for clients."""

    @property
    def port(self) -> int:
        """The port for clients."""
        return self._ports[self.port_names[0]]

    @property
    def folder(self) -> Path:
        """The folder that holds data, settings and logs."""
        return self._owned.folder

    @property
    def logs(self) -> Path:
        """The file that the server's output goes to."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        """The id of the main process."""
        if self._pid is None:
            raise ServerFailed(self.name, "is not running")
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the main process is there, frozen or not."""
        return self._custody is not None and self._pid is not None and self._exit_code() is None

    def start(self) -> Self:
        """Start with fresh ports; return once the server has proven to be ours and ready."""
        if self._custody is not None:
            raise ServerFailed(self.name, "is started already")
        account = self._account()
        self._locate()
        keeps = self._kept_folder is not None
        self._custody = Custody.open(
            self.name,
            account=account,
            folder=self._kept_folder,
            end_signal=self.stop_signal if keeps else self.end_signal,
            end_seconds=self.stop_seconds,
        )
        try:
            self._start_on_free_ports()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server and remove its folder; harmless when it is not running."""
        custody, self._custody, self._pid = self._custody, None, None
        if custody is not None:
            custody.close()

    def halt(self) -> None:
        """End the server the gentle way and keep its data for `restart`."""
        self._owned.stop(self.stop_signal, self.stop_seconds)
        self._pid = None

    def kill(self) -> None:
        """Kill every process of the server with -9 and keep its data for `restart`."""
        self._owned.signal(signal.SIGKILL)
        self._pid = None

    def freeze(self) -> None:
        """Stop every process of the server in its tracks; connections stay open and mute."""
        self._owned.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._owned.signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start again with the same data on the same ports, ending the server first if it runs."""
        if self.running:
            self.halt()
        limit = time.monotonic() + self.restart_seconds
        while True:
            try:
                return self._launch()
            except _EndedEarly as ended:
                # Orphans of a killed PostgreSQL may hold its shared memory for a moment.
                if time.monotonic() > limit:
                    raise self._failure(str(ended)) from ended
                time.sleep(_RETRY_SECONDS)

    def keep_logs(self) -> Path:
        """Copy logs and settings to a folder that stays; return it."""
        kept = Path(tempfile.mkdtemp(prefix=f"pillarbox-logs-{self.name}-"))
        for pattern in _KEPT:
            for file in self.folder.glob(pattern):
                shutil.copy(file, kept)
        return kept

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _account(self) -> Account | None:
        """Choose the user to run as; None for the user of this process."""
        return None

    @abstractmethod
    def _locate(self) -> None:
        """Find the programs, or raise `ServerUnavailable`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make data and settings for the chosen ports; data of a kept folder stay."""

    @abstractmethod
    def _command(self) -> Command:
        """Say how the server is run in the foreground."""

    @abstractmethod
    def _probe(self) -> str | None:
        """Return the version once the server is ready and has proven to be ours.

        None or an `OSError` means not yet.
        """

    def _lost_cause(self) -> str | None:
        """Say why this start can come to nothing, so that the server is to be started anew."""
        return None

    @property
    def _owned(self) -> Custody:
        if self._custody is None:
            raise ServerFailed(self.name, "is not started")
        return self._custody

    def _start_on_free_ports(self) -> None:
        for left in reversed(range(_PORT_TRIES)):
            wanted = [name for name in self.port_names if name not in self._fixed_ports]
            self._ports = {**free_ports(wanted), **self._fixed_ports}
            self._prepare()
            try:
                self._launch()
            except _EndedEarly as ended:
                if not left or not wanted or not self._lost_a_port():
                    raise self._failure(str(ended)) from ended
                self._forget_data()
            else:
                return

    def _lost_a_port(self) -> bool:
        # Not every server says so, but whoever took the port is most likely still there.
        said = _PORT_TAKEN.search(self._output()) is not None
        return said or not all(map(is_free, self._ports.values()))

    def _forget_data(self) -> None:
        if self._kept_folder is None:
            for entry in self.folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _launch(self) -> None:
        self._log_start = self.logs.stat().st_size if self.logs.exists() else 0
        self._pid = self._owned.spawn(self._command(), self.logs)
        limit = time.monotonic() + self.ready_seconds
        while (version := self._answers()) is None:
            self._expect_a_future()
            if time.monotonic() > limit:
                raise self._failure(f"was not ready after {self.ready_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        self._owned.ready()
        self.version = version

    def _expect_a_future(self) -> None:
        code = self._exit_code()
        if code is not None:
            self._pid = None
            problem = f"ended with {code} before it was ready:\n{self._output()[-_TAIL:]}"
            raise _EndedEarly(problem)
        cause = self._lost_cause()
        if cause is not None:
            self.kill()
            raise _EndedEarly(cause)

    def _answers(self) -> str | None:
        try:
            return self._probe()
        except (OSError, ValueError):
            return None  # a ValueError is the answer of somebody else's server

    def _run(self, command: Command, seconds: float) -> None:
        """Run a program of the server to its end, under the guardian's eyes."""
        self._log_start = self.logs.stat().st_size if self.logs.exists() else 0
        self._owned.spawn(command, self.logs)
        limit = time.monotonic() + seconds
        while (code := self._exit_code()) is None and time.monotonic() < limit:
            time.sleep(_POLL_SECONDS)
        if code != 0:
            problem = f"could not be prepared, {command.argv[0]} ended with {code}"
            raise self._failure(f"{problem}:\n{self._output()[-_TAIL:]}")

    def _failure(self, problem: str) -> ServerFailed:
        return ServerFailed(self.name, problem, self.keep_logs())

    def _exit_code(self) -> int | None:
        return self._owned.returncode()

    def _output(self) -> str:
        """Return what the server wrote since it was last started."""
        with self.logs.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")
