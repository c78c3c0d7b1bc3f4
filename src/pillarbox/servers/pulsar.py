"""Run a standalone Pulsar."""

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pillarbox.servers.broker import Broker, Login
from pillarbox.servers.custody import Command
from pillarbox.servers.errors import ServerFailed
from pillarbox.servers.locate import PULSAR_VERSION, find_java, find_pulsar
from pillarbox.servers.ports import LOOPBACK
from pillarbox.servers.tls import TlsFiles

_ASK_SECONDS: Final = 10.0
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
)
_METADATA: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_DRIVERS: Final = (
    f"-Dbookkeeper.metadata.bookie.drivers={_METADATA}BookieDriver",
    f"-Dbookkeeper.metadata.client.drivers={_METADATA}ClientDriver",
)
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication"
_PLUGINS: Final = "org.apache.pulsar.client.impl.auth"
_JAVA: Final = (
    "-Xms256m",
    "-XX:MaxDirectMemorySize=768m",
    "-XX:+UseG1GC",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j2.is.webapp=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--enable-native-access=ALL-UNNAMED",
)
_QUARREL: Final = "Lock on resource /ledgers/available/"
_QUARREL_LINES: Final = 10
_LOGGING: Final = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="org.apache.pulsar.metadata.coordination.impl.ResourceLockImpl" level="INFO"/>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


class Pulsar(Broker):
    """Pulsar with one bookie; it deduplicates and writes to disk before it acknowledges.

    Settings are those of `standalone.conf` and win over ours. A login's password is what signs the
    tokens that clients show.
    """

    name = "pulsar"
    port_names = ("client", "web", "bookie", "inner")
    ready_seconds = 100.0
    restart_seconds = 60.0
    stop_seconds = 30.0

    def __init__(
        self,
        *,
        settings: Mapping[str, str | float] | None = None,
        memory: str = "768m",
        folder: Path | None = None,
        port: int | None = None,
        tls: TlsFiles | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(folder=folder, port=port, tls=tls, login=login)
        self._settings = dict(settings or {})
        self._memory = memory
        # Its metadata carry the cluster's name, so a kept folder needs the same name again.
        self._cluster = "pillarbox" if folder else f"pillarbox-{secrets.token_hex(8)}"
        self._jars = Path()
        self._java = Path()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{'pulsar+ssl' if self._tls else 'pulsar'}://{LOOPBACK}:{self.port}"

    @property
    def inner_url(self) -> str:
        """The address for the broker itself, always in plain text."""
        return f"pulsar://{LOOPBACK}:{self._ports['inner'] if self._tls else self.port}"

    @property
    def token(self) -> str:
        """The token of the user who is let in."""
        if self._login is None:
            raise ServerFailed(self.name, "asks for no token")
        return token_for(self._login)

    @property
    def admin_url(self) -> str:
        """The address of the admin interface."""
        return f"http://{LOOPBACK}:{self._ports['web']}"

    def _locate(self) -> None:
        self._jars = find_pulsar()
        self._java = find_java(self.name)

    def _prepare(self) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self._properties().items())
        (self.folder / "standalone.conf").write_text(text, encoding="utf-8")
        (self.folder / "log4j2.xml").write_text(_LOGGING, encoding="utf-8")

    def _properties(self) -> dict[str, str | float]:
        return {
            "clusterName": self._cluster,
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "brokerServicePort": self.port,
            "webServicePort": self._ports["web"],
            # Without these two the bookie listens on all interfaces, on a port of its choice.
            "listeningInterface": "lo0" if sys.platform == "darwin" else "lo",
            "allowEphemeralPorts": "true",
            "allowLoopback": "true",
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "brokerDeduplicationEnabled": "true",
            "journalSyncData": "true",
            "journalMaxGroupWaitMSec": 1,
            # What is written together goes out in one call: of an entry in two calls a kill leaves
            # one half, the bookie replays it as a whole, and its topic cannot be opened any more.
            "journalWriteBufferSizeKB": 2048,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.99,
            "brokerDeleteInactiveTopicsEnabled": "false",
            "webSocketServiceEnabled": "false",
            "loadBalancerEnabled": "false",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
            "brokerShutdownTimeoutMs": 10_000,
            "numIOThreads": 4,
            "numHttpServerThreads": 4,
            "dbStorage_writeCacheMaxSizeMb": 64,
            "dbStorage_readAheadCacheMaxSizeMb": 32,
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            **(self._transport(self._tls) if self._tls else {}),
            **(self._tokens(self._login) if self._login else {}),
            **self._settings,
        }

    def _transport(self, tls: TlsFiles) -> dict[str, str | float]:
        return {
            # The broker talks to itself in plain text: it would refuse its own bad certificate.
            "brokerServicePort": self._ports["inner"],
            "brokerServicePortTls": self.port,
            "tlsCertificateFilePath": str(tls.certificate),
            "tlsKeyFilePath": str(tls.key),
            "tlsTrustCertsFilePath": str(tls.authority),
            "tlsRequireTrustedClientCertOnConnect": json.dumps(tls.asks_client),
        }

    def _tokens(self, login: Login) -> dict[str, str | float]:
        key = base64.b64encode(_signing_key(login)).decode()
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}.AuthenticationProviderToken",
            "tokenSecretKey": f"data:;base64,{key}",
            "superUserRoles": login.user,
            "brokerClientAuthenticationPlugin": f"{_PLUGINS}.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.token}",
        }

    def _command(self) -> Command:
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        logging = f"-Dlog4j.configurationFile={self.folder / 'log4j2.xml'}"
        argv: list[str | Path] = [self._java, f"-Xmx{self._memory}", *_JAVA, *_DRIVERS]
        argv += [*opened, logging, "-cp", f"{self._jars}/*"]
        argv += ["org.apache.pulsar.PulsarStandaloneStarter", "-nfw", "-nss", "-a", LOOPBACK]
        argv += ["-c", self.folder / "standalone.conf", "--metadata-dir", self.folder / "metadata"]
        argv += ["--bookkeeper-dir", self.folder / "bookkeeper"]
        argv += ["--bookkeeper-port", str(self._ports["bookie"])]
        return Command(argv)

    def _probe(self) -> str | None:
        try:
            clusters = json.loads(self._get("/admin/v2/clusters"))
            if self._cluster not in clusters or self._get("/admin/v2/brokers/health") != b"ok":
                return None
        except (http.client.HTTPException, json.JSONDecodeError):
            return None
        return PULSAR_VERSION

    def _lost_cause(self) -> str | None:
        # A bookie that comes back after a kill takes its old registration away. When word of that
        # reaches it late, it takes its new one for lost and makes another, of which it gets word
        # again, without an end; to the broker there is mostly no bookie, and no topic opens.
        if self._output().count(_QUARREL) < _QUARREL_LINES:
            return None
        return "its bookie registers itself over and over"

    def _get(self, path: str) -> bytes:
        # Not urllib, which would ask a proxy of the environment.
        connection = http.client.HTTPConnection(LOOPBACK, self._ports["web"], timeout=_ASK_SECONDS)
        try:
            rights = {"Authorization": f"Bearer {self.token}"} if self._login else {}
            connection.request("GET", path, headers=rights)
            return connection.getresponse().read()
        finally:
            connection.close()


def token_for(login: Login) -> str:
    """Return the token of a user, signed with the login's password."""
    head, body = _part({"alg": "HS256"}), _part({"sub": login.user})
    signature = hmac.digest(_signing_key(login), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{_base64url(signature)}"


def _signing_key(login: Login) -> bytes:
    return hashlib.sha256(login.password.encode()).digest()


def _part(content: dict[str, str]) -> str:
    return _base64url(json.dumps(content).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
