"""Talk to the guardian process that owns a server."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pillarbox.servers import guardian
from pillarbox.servers.account import Account, temporary_root
from pillarbox.servers.errors import ServerFailed

_CLOSE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run, with what it adds to the environment."""

    argv: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)


class Custody:
    """One server's folder and processes; both end with `close` or with this process.

    Calls are safe from several threads. Nothing survives a kill -9 of this process.
    """

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        account: Account | None,
        *,
        temporary: bool,
    ) -> None:
        self._name = name
        self._process = process
        self._account = account
        self._temporary = temporary
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._shared: list[tuple[str, int]] = []
        first = self._read()
        if "error" in first:
            self._hang_up()
            raise ServerFailed(name, f"has no folder to run in: {first['error']}")
        self.folder = Path(first["folder"])

    @classmethod
    def open(
        cls,
        name: str,
        *,
        account: Account | None,
        folder: Path | None,
        end_signal: int,
        end_seconds: float,
    ) -> Self:
        """Start a guardian; without a folder it makes one and removes it at the end."""
        settings = {
            "prefix": f"pillarbox-{name}-",
            "within": str(temporary_root(account)),
            "folder": None if folder is None else str(folder),
            "uid": account and account.uid,
            "gid": account and account.gid,
            "end_signal": end_signal,
            "end_seconds": end_seconds,
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is for the parent alone
        )
        return cls(name, process, account, temporary=folder is None)

    def spawn(self, command: Command, log: Path) -> int:
        """Run a program in the folder, as the server's main process; return its id."""
        request = {
            "op": "spawn",
            "argv": [str(argument) for argument in command.argv],
            "env": {**os.environ, **command.env},
            "cwd": str(self.folder),
            "log": str(log),
            "uid": self._account and self._account.uid,
            "gid": self._account and self._account.gid,
        }
        return int(self._ask(request)["pid"])

    def ready(self) -> None:
        """Let the guardian note what a ready server holds outside of its folder."""
        self._shared = self._ask({"op": "ready"})["shared"]

    def returncode(self) -> int | None:
        """Return how the main process ended; None while it runs."""
        code: int | None = self._ask({"op": "status"})["returncode"]
        return code

    def signal(self, number: int) -> None:
        """Send a signal to every process of the server; wait until SIGKILL or SIGSTOP took effect."""
        self._ask({"op": "signal", "signal": int(number)})

    def stop(self, number: int, seconds: float) -> None:
        """Ask the main process to end, wait, then kill whatever is left."""
        self._ask({"op": "stop", "signal": int(number), "seconds": seconds})

    def close(self) -> None:
        """End every process, remove the folder, end the guardian."""
        self._hang_up()
        if self._process.returncode != 0:
            self._clean_up()

    def _hang_up(self) -> None:
        with self._lock:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _clean_up(self) -> None:
        # The guardian was killed: what it could not remove is removed here.
        for name, number in self._shared:
            guardian.remove_shared(name, number)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            pipe = self._process.stdin
            if pipe is None or pipe.closed:
                raise ServerFailed(self._name, "is not running")
            number = next(self._numbers)
            try:
                pipe.write(json.dumps({"number": number, **request}).encode() + b"\n")
                pipe.flush()
            except BrokenPipeError as broken:
                raise ServerFailed(self._name, "lost its guardian process") from broken
            # A Ctrl-C may have left the answer to an earlier request unread.
            while (answer := self._read())["number"] != number:
                pass
        if "error" in answer:
            raise ServerFailed(self._name, answer["error"])
        return answer

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise ServerFailed(self._name, "lost its guardian process")
        answer: dict[str, Any] = json.loads(line)
        return answer
