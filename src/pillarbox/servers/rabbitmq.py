"""Run a RabbitMQ node with a port mapper of its own."""

import re
import secrets
from pathlib import Path
from typing import Final

from pillarbox.servers.custody import Command
from pillarbox.servers.locate import find_rabbitmq
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.server import Server
from pillarbox.servers.wire import ask

_HELLO: Final = b"AMQP\x00\x00\x09\x01"
_FRAME_END: Final = b"\xce"
_HEADER: Final = 7


class RabbitMq(Server):
    """RabbitMQ with the user guest, without plugins."""

    name = "rabbitmq"
    port_names = ("client", "distribution", "mapper")
    ready_seconds = 90.0
    stop_seconds = 30.0

    def __init__(self, *, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder=folder, ports={} if port is None else {"client": port})
        # The data folder carries the node's name, so a kept folder needs the same name again.
        self._node = "pillarbox" if folder else f"pillarbox-{secrets.token_hex(8)}"
        self._script = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"

    def _locate(self) -> None:
        self._script = find_rabbitmq()

    def _prepare(self) -> None:
        (self.folder / "rabbitmq.conf").touch()
        (self.folder / "plugins").write_text("[].\n", encoding="ascii")

    def _command(self) -> Command:
        folder = self.folder
        return Command(
            (self._script,),
            env={
                "HOME": str(folder),
                "RABBITMQ_NODENAME": f"{self._node}@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
                "RABBITMQ_NODE_PORT": str(self.port),
                "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
                "ERL_EPMD_PORT": str(self._ports["mapper"]),
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
        start = ask(self.port, _HELLO, _whole_frame)
        if f"{self._node}@".encode() not in start:
            return None
        found = re.search(rb"versionS....([\d.]+)", start, re.DOTALL)
        return found[1].decode() if found else None


def _whole_frame(answer: bytes) -> bool:
    if len(answer) < _HEADER:
        return False
    length = int.from_bytes(answer[3:_HEADER], "big")
    return len(answer) > _HEADER + length and answer.endswith(_FRAME_END)
