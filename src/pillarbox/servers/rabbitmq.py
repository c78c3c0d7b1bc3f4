"""Run a RabbitMQ node with a port mapper of its own."""

import base64
import hashlib
import json
import os
import re
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pillarbox.servers.broker import Broker, Login
from pillarbox.servers.custody import Command
from pillarbox.servers.errors import ServerFailed
from pillarbox.servers.locate import find_rabbitmq
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles
from pillarbox.servers.wire import ask

_HELLO: Final = b"AMQP\x00\x00\x09\x01"
_FRAME_END: Final = b"\xce"
_HEADER: Final = 7
_SALT: Final = 4
_CONTROL_SECONDS: Final = 30.0
_TCP: Final = "listeners.tcp.1 = {host}:{port}\n"
_TLS: Final = """\
listeners.tcp = none
listeners.ssl.1 = {host}:{port}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.cacertfile = {authority}
ssl_options.verify = {verify}
ssl_options.fail_if_no_peer_cert = {needs_client}
"""


class RabbitMq(Broker):
    """RabbitMQ with the user guest or the one of a login, without plugins.

    Settings are those of `rabbitmq.conf` and win over ours.
    """

    name = "rabbitmq"
    port_names = ("client", "distribution", "mapper")
    ready_seconds = 90.0
    stop_seconds = 30.0

    def __init__(
        self,
        *,
        settings: Mapping[str, str | float] | None = None,
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, tls=tls, login=login)
        self._settings = dict(settings or {})
        # The data folder carries the node's name, so a kept folder needs the same name again.
        self._node = "pillarbox" if folder else f"pillarbox-{secrets.token_hex(8)}"
        self._script = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        login = self._login or Login("guest", "guest")
        user, password = quote(login.user, safe=""), quote(login.password, safe="")
        return f"{'amqps' if self._tls else 'amqp'}://{user}:{password}@{LOOPBACK}:{self.port}/"

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl` against this node; return what it says.

        server.control("set_policy", "full", "^orders$", '{"max-length": 0}')
        """
        try:
            ran = subprocess.run(
                (self._script.with_name("rabbitmqctl"), "-q", "-n", self._node_name, *command),
                env={"PATH": os.environ.get("PATH", ""), **self._mapping},
                capture_output=True,
                text=True,
                timeout=_CONTROL_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or error
            raise ServerFailed(self.name, f"did not `rabbitmqctl {command[0]}`: {said}") from error
        return ran.stdout

    @property
    def _node_name(self) -> str:
        return f"{self._node}@localhost"

    @property
    def _mapping(self) -> dict[str, str]:
        """How the node is found: by a mapper and a secret of its own."""
        return {"HOME": str(self.folder), "ERL_EPMD_PORT": str(self._ports["mapper"])}

    def _locate(self) -> None:
        self._script = find_rabbitmq()

    def _prepare(self) -> None:
        config = _TCP.format(host=LOOPBACK, port=self.port)
        if self._tls:
            config = _TLS.format(
                host=LOOPBACK,
                port=self.port,
                certificate=self._tls.certificate,
                key=self._tls.key,
                authority=self._tls.authority,
                verify="verify_peer" if self._tls.asks_client else "verify_none",
                needs_client=json.dumps(self._tls.asks_client),
            )
        if self._login:
            users = self.folder / "users.json"
            users.write_text(json.dumps(_definitions(self._login)), encoding="utf-8")
            config += f"load_definitions = {users}\n"
        config += "".join(f"{name} = {value}\n" for name, value in self._settings.items())
        (self.folder / "rabbitmq.conf").write_text(config, encoding="utf-8")
        (self.folder / "plugins").write_text("[].\n", encoding="ascii")

    def _command(self) -> Command:
        folder = self.folder
        return Command(
            (self._script,),
            env={
                **self._mapping,
                "RABBITMQ_NODENAME": self._node_name,
                "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
                "ERL_EPMD_ADDRESS": LOOPBACK,
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_LOG_BASE": str(folder / "log"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_PID_FILE": str(folder / "pid"),
                "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "gen"),
                # The distribution would listen on every interface.
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            },
        )

    def _probe(self) -> str | None:
        # The first frame after the greeting names the cluster, which is called like its node.
        start = ask(self.port, _HELLO, _whole_frame, tls=self._tls)
        if f"{self._node}@".encode() not in start:
            return None
        found = re.search(rb"versionS....([\d.]+)", start, re.DOTALL)
        return found[1].decode() if found else None


def _definitions(login: Login) -> dict[str, object]:
    """Describe a user who may do everything; RabbitMQ reads this at every start."""
    salt = secrets.token_bytes(_SALT)
    digest = hashlib.sha256(salt + login.password.encode()).digest()
    user = {
        "name": login.user,
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "administrator",
    }
    rights = {"user": login.user, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {"vhosts": [{"name": "/"}], "users": [user], "permissions": [rights]}


def _whole_frame(answer: bytes) -> bool:
    if len(answer) < _HEADER:
        return False
    length = int.from_bytes(answer[3:_HEADER], "big")
    return len(answer) > _HEADER + length and answer.endswith(_FRAME_END)
