"""Run NATS with JetStream."""

import json
import secrets
from pathlib import Path
from typing import Final

from pillarbox.servers.broker import Broker, Login
from pillarbox.servers.custody import Command
from pillarbox.servers.locate import find_nats
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles
from pillarbox.servers.wire import ask

# Every acknowledged message is on disk: a kill of the machine loses none.
_CONFIG: Final = """\
server_name: {name}
listen: "{host}:{port}"
jetstream {{
  store_dir: "{store}"
  sync_interval: always
}}
"""
_TLS: Final = """\
tls {{
  cert_file: {certificate}
  key_file: {key}
  ca_file: {authority}
  verify: {verify}
}}
"""
_LOGIN: Final = """\
authorization {{
  user: {user}
  password: {password}
}}
"""


class Nats(Broker):
    """NATS with JetStream, which writes to disk before it acknowledges."""

    name = "nats"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, tls=tls, login=login)
        self._server_name = f"pillarbox-{secrets.token_hex(8)}"
        self._program = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{'tls' if self._tls else 'nats'}://{LOOPBACK}:{self.port}"

    def _locate(self) -> None:
        self._program = find_nats()

    def _prepare(self) -> None:
        config = _CONFIG.format(
            name=self._server_name, host=LOOPBACK, port=self.port, store=self.folder / "data"
        )
        if self._tls:
            config += _TLS.format(
                certificate=json.dumps(str(self._tls.certificate)),
                key=json.dumps(str(self._tls.key)),
                authority=json.dumps(str(self._tls.authority)),
                verify=json.dumps(self._tls.asks_client),
            )
        if self._login:
            user, password = json.dumps(self._login.user), json.dumps(self._login.password)
            config += _LOGIN.format(user=user, password=password)
        (self.folder / "nats.conf").write_text(config, encoding="utf-8")

    def _command(self) -> Command:
        return Command((self._program, "-c", self.folder / "nats.conf"))

    def _probe(self) -> str | None:
        # It greets in plain text, also before TLS.
        greeting = ask(self.port, b"", lambda answer: answer.endswith(b"\r\n"))
        info = json.loads(greeting.removeprefix(b"INFO "))
        if info.get("server_name") != self._server_name or not info.get("jetstream"):
            return None
        return str(info["version"])
