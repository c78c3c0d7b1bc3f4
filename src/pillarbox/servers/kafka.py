"""Run a single Kafka node."""

import base64
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pillarbox.servers.broker import Broker, Login
from pillarbox.servers.custody import Command
from pillarbox.servers.locate import KAFKA_VERSION, find_java, find_kafka
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles
from pillarbox.servers.wire import ask

_FORMAT_SECONDS: Final = 60.0
_READY: Final = "Kafka Server started"
_JAVA: Final = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+PerfDisableSharedMem")
_CLIENT: Final = "listener.name.client"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOGGING: Final = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


class Kafka(Broker):
    """Kafka as one node that is broker and controller; topics are not created by themselves.

    Settings are those of `server.properties` and win over ours.
    """

    name = "kafka"
    port_names = ("client", "controller", "inner")
    ready_seconds = 90.0
    stop_seconds = 30.0
    host = LOOPBACK

    def __init__(
        self,
        *,
        settings: Mapping[str, str | float] | None = None,
        memory: str = "512m",
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, tls=tls, login=login)
        self._settings = dict(settings or {})
        self._memory = memory
        self._cluster = cluster_id(secrets.token_bytes(16))
        self._jars = Path()
        self._java = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"kafka://{self.bootstrap}"

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` of Kafka's own clients."""
        return f"{self.host}:{self.port}"

    @property
    def inner(self) -> str:
        """The `bootstrap.servers` of the node itself: in plain text, for everybody here."""
        return f"{LOOPBACK}:{self._ports['inner']}" if self._secured else self.bootstrap

    @property
    def _secured(self) -> bool:
        return self._tls is not None or self._login is not None

    def _locate(self) -> None:
        self._jars = find_kafka()
        self._java = find_java(self.name)

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _prepare(self) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self._properties().items())
        self._config.write_text(text, encoding="utf-8")
        (self.folder / "log4j2.xml").write_text(_LOGGING, encoding="utf-8")
        formatted = self.folder / "data" / "meta.properties"
        if formatted.exists():
            lines = formatted.read_text("utf-8").splitlines()
            self._cluster = dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]
        else:
            tool = ("kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", self._config)
            self._run(Command((*self._jvm("128m"), *tool)), _FORMAT_SECONDS)

    def _properties(self) -> dict[str, str | float]:
        controller = f"{LOOPBACK}:{self._ports['controller']}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.inner},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.inner}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 8_388_608,
            # With the default session a killed node would be fenced for 15 s.
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            **(self._security(controller) if self._secured else {}),
            **self._settings,
        }

    def _security(self, controller: str) -> dict[str, str | float]:
        """Return the settings of a listener that asks for TLS, a login, or both.

        The node talks to itself over another one, since it would refuse its own bad certificate.
        """
        ours, inner = f"CLIENT://{self.bootstrap}", f"PLAINTEXT://{self.inner}"
        kind = ("SASL_" if self._login else "") + ("SSL" if self._tls else "PLAINTEXT")
        made: dict[str, str | float] = {
            "listeners": f"{ours},{inner},CONTROLLER://{controller}",
            "advertised.listeners": f"{ours},{inner}",
            "listener.security.protocol.map": (
                f"CLIENT:{kind},PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
        }
        if self._tls:
            made |= {
                f"{_CLIENT}.ssl.keystore.type": "PEM",
                f"{_CLIENT}.ssl.keystore.location": str(self._keystore(self._tls)),
                f"{_CLIENT}.ssl.truststore.type": "PEM",
                f"{_CLIENT}.ssl.truststore.location": str(self._tls.authority),
                f"{_CLIENT}.ssl.client.auth": "required" if self._tls.asks_client else "none",
            }
        if self._login:
            user = f'user_{self._login.user}="{self._login.password}"'
            made |= {
                f"{_CLIENT}.sasl.enabled.mechanisms": "PLAIN",
                f"{_CLIENT}.plain.sasl.jaas.config": f"{_PLAIN} required {user};",
            }
        return made

    def _keystore(self, tls: TlsFiles) -> Path:
        """Write key and certificate into one file, as Kafka wants them."""
        store = self.folder / "keystore.pem"
        store.touch(mode=0o600)
        store.write_bytes(tls.key.read_bytes() + tls.certificate.read_bytes())
        return store

    def _jvm(self, memory: str) -> tuple[str | Path, ...]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}"
        return (self._java, f"-Xmx{memory}", *_JAVA, logging, "-cp", f"{self._jars}/*")

    def _command(self) -> Command:
        return Command((*self._jvm(self._memory), "kafka.Kafka", self._config))

    def _probe(self) -> str | None:
        if _READY not in self._output():
            return None
        host, _, port = self.inner.rpartition(":")
        answer = ask(int(port), _metadata_request(), _whole_response, host=host)
        return KAFKA_VERSION if self._cluster.encode() in answer else None


def cluster_id(random: bytes) -> str:
    """Write 16 random bytes as Kafka writes ids, starting with a letter.

    The tool that formats the folder would take a leading dash for an option.
    """
    return base64.urlsafe_b64encode(bytes([random[0] & 0x3F]) + random[1:]).decode().rstrip("=")


def _metadata_request() -> bytes:
    """Ask for the cluster's id and no topic (Metadata, version 5)."""
    client = b"pillarbox"
    header = struct.pack(">hhih", 3, 5, 1, len(client)) + client
    body = struct.pack(">i?", 0, False)
    return struct.pack(">i", len(header + body)) + header + body


def _whole_response(answer: bytes) -> bool:
    prefix = 4
    return len(answer) >= prefix and len(answer) >= prefix + int.from_bytes(answer[:prefix], "big")
