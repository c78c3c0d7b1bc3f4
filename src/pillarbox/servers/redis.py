"""Run Redis."""

import re
from pathlib import Path

from pillarbox.servers.custody import Command
from pillarbox.servers.locate import find_redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.server import Server
from pillarbox.servers.wire import ask


class Redis(Server):
    """Redis, which writes to its append-only file before it answers."""

    name = "redis"

    def __init__(self, *, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder=folder, ports={} if port is None else {"client": port})
        self._program = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def _locate(self) -> None:
        self._program = find_redis()

    def _prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)

    def _command(self) -> Command:
        where = ("--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self.folder / "data"))
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        return Command((self._program, *where, *durable, "--daemonize", "no"))

    def _probe(self) -> str | None:
        question = b"INFO server\r\nINFO persistence\r\nPING\r\n"
        # While it loads its file, Redis answers the PING with an error.
        answer = ask(self.port, question, lambda got: got.endswith((b"+PONG\r\n", b"memory\r\n")))
        text = answer.decode()
        if f"process_id:{self.pid}\r\n" not in text or not text.endswith("+PONG\r\n"):
            return None
        found = re.search(r"redis_version:(\S+)", text)
        return found[1] if found else None
