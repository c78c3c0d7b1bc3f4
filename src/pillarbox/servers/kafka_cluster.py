"""Run Kafka as several nodes."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from pillarbox.servers.custody import Command
from pillarbox.servers.kafka import Kafka, cluster_id
from pillarbox.servers.network import Network, Place
from pillarbox.servers.ports import LOOPBACK, free_ports

_NODES: Final = 3


class KafkaCluster:
    """Three Kafka nodes, each broker and controller; two of them must have what is acknowledged.

    Each node is a server by itself, to be killed, frozen and restarted; what is said to the cluster
    is said to all of them. Settings are those of `server.properties` and win over ours. In a `Network`
    that is started, with a place for each, nodes talk to one another over the links that can be cut, and
    clients reach each node all the same.
    """

    name = "kafka"

    def __init__(
        self,
        *,
        settings: Mapping[str, str | float] | None = None,
        memory: str = "384m",
        network: Network | None = None,
    ) -> None:
        numbers = range(1, _NODES + 1)
        places = [None] * _NODES if network is None else network.places
        chosen = free_ports([f"{name}-{each}" for each in numbers for name in Kafka.port_names])
        ports = [{name: chosen[f"{name}-{each}"] for name in Kafka.port_names} for each in numbers]
        grounds = [*map(_Ground, numbers, ports, places)]
        voters = ",".join(ground.voter for ground in grounds)
        shared = {**_copies(), "controller.quorum.voters": voters}
        name = cluster_id(secrets.token_bytes(16))
        self.nodes: Sequence[Kafka] = [
            _Node(ground, {**ground.settings(), **shared, **(settings or {})}, memory, name)
            for ground in grounds
        ]

    @property
    def url(self) -> str:
        """The address for clients, with all nodes."""
        return f"kafka://{self.bootstrap}"

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` of Kafka's own clients."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, number: int) -> Kafka:
        """Return the node with this id."""
        return self.nodes[number - 1]

    def start(self) -> Self:
        """Start all nodes at once, since none is ready alone."""
        try:
            self._tell(Kafka.start)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes and remove their folders."""
        self._tell(Kafka.stop)

    def kill(self) -> None:
        """Kill all nodes with -9 and keep their data for `restart`."""
        self._tell(Kafka.kill)

    def freeze(self) -> None:
        """Stop all nodes in their tracks."""
        self._tell(Kafka.freeze)

    def thaw(self) -> None:
        """Let all nodes go on."""
        self._tell(Kafka.thaw)

    def restart(self) -> None:
        """Start those nodes again that do not run, with their data."""
        self._tell(lambda node: None if node.running else node.restart())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _tell(self, what: Callable[[Kafka], object]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            for told in [threads.submit(what, node) for node in self.nodes]:
                told.result()


@dataclass(frozen=True, slots=True)
class _Ground:
    """Where a node stands: its ports are known to the others before it starts."""

    number: int
    ports: Mapping[str, int]
    place: Place | None

    @property
    def host(self) -> str:
        """The address that clients come to."""
        return LOOPBACK if self.place is None else self.place.outer

    @property
    def voter(self) -> str:
        """How the others know its controller."""
        return f"{self.number}@{self._controller}"

    def settings(self) -> dict[str, str | float]:
        """Return what differs from a node that is alone."""
        if self.place is None:
            return {"node.id": self.number}
        clients = f"PLAINTEXT://{self.host}:{self.ports['client']}"
        nodes = f"NODES://{self.place.inner}:{self.ports['inner']}"
        return {
            "node.id": self.number,
            "listeners": f"{clients},{nodes},CONTROLLER://{self._controller}",
            "advertised.listeners": f"{clients},{nodes}",
            "inter.broker.listener.name": "NODES",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "NODES", "CONTROLLER")
            ),
        }

    @property
    def _controller(self) -> str:
        host = LOOPBACK if self.place is None else self.place.inner
        return f"{host}:{self.ports['controller']}"


class _Node(Kafka):
    """One of several nodes."""

    def __init__(
        self, ground: _Ground, settings: Mapping[str, str | float], memory: str, cluster: str
    ) -> None:
        super().__init__(settings=settings, memory=memory)
        self.host = ground.host
        self._place = ground.place
        self._fixed_ports = dict(ground.ports)
        self._ports = dict(ground.ports)
        self._cluster = cluster

    def _command(self) -> Command:
        alone = super()._command()
        enter = () if self._place is None else self._place.enter
        return Command((*enter, *alone.argv), alone.env)


def _copies() -> dict[str, str | float]:
    """Return the settings by which one node may be lost."""
    return {
        "default.replication.factor": _NODES,
        "min.insync.replicas": _NODES - 1,
        "offsets.topic.replication.factor": _NODES,
        "transaction.state.log.replication.factor": _NODES,
        "transaction.state.log.min.isr": _NODES - 1,
        "share.coordinator.state.topic.replication.factor": _NODES,
        "share.coordinator.state.topic.min.isr": _NODES - 1,
    }
