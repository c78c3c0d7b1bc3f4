"""Run Redis."""

import re
from pathlib import Path

from pillarbox.servers.broker import Broker, Login
from pillarbox.servers.custody import Command
from pillarbox.servers.locate import find_redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles
from pillarbox.servers.wire import ask


class Redis(Broker):
    """Redis, which writes to its append-only file before it answers."""

    name = "redis"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, tls=tls, login=login)
        self._program = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{'rediss' if self._tls else 'redis'}://{LOOPBACK}:{self.port}/0"

    def _locate(self) -> None:
        self._program = find_redis()

    def _prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)
        if self._login:
            # Not among the arguments, which every process of the machine can read.
            user = f"user {self._login.user} on >{self._login.password} ~* &* +@all"
            users = f"user default off\n{user}\n"
            (self.folder / "users.acl").write_text(users, encoding="utf-8")

    def _command(self) -> Command:
        where = ("--bind", LOOPBACK, *self._listener(), "--dir", self.folder / "data")
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        users = ("--aclfile", self.folder / "users.acl") if self._login else ()
        return Command((self._program, *where, *durable, *users, "--daemonize", "no"))

    def _listener(self) -> tuple[str | Path, ...]:
        if not self._tls:
            return ("--port", str(self.port))
        clients = "yes" if self._tls.asks_client else "no"
        return (
            *("--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", clients),
            *("--tls-cert-file", self._tls.certificate, "--tls-key-file", self._tls.key),
            *("--tls-ca-cert-file", self._tls.authority),
        )

    def _probe(self) -> str | None:
        login = f"AUTH {self._login.user} {self._login.password}\r\n" if self._login else ""
        question = f"{login}INFO server\r\nINFO persistence\r\nPING\r\n".encode()
        # While it loads its file, Redis answers the PING with an error.
        ends = (b"+PONG\r\n", b"memory\r\n")
        answer = ask(self.port, question, lambda got: got.endswith(ends), tls=self._tls)
        text = answer.decode()
        if f"process_id:{self.pid}\r\n" not in text or not text.endswith("+PONG\r\n"):
            return None
        found = re.search(r"redis_version:(\S+)", text)
        return found[1] if found else None
