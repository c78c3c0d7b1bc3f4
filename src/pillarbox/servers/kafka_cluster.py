"""Run Kafka as several nodes."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from pillarbox.servers.kafka import Kafka, cluster_id
from pillarbox.servers.ports import LOOPBACK, free_ports

_NODES: Final = 3


class KafkaCluster:
    """Three Kafka nodes, each broker and controller; two of them must have what is acknowledged.

    Each node is a server by itself, to be killed, frozen and restarted; what is said to the cluster
    is said to all of them. Settings are those of `server.properties` and win over ours.
    """

    name = "kafka"

    def __init__(
        self, *, settings: Mapping[str, str | float] | None = None, memory: str = "384m"
    ) -> None:
        numbers = range(1, _NODES + 1)
        ports = free_ports([f"{name}-{each}" for each in numbers for name in Kafka.port_names])
        voters = ",".join(f"{each}@{LOOPBACK}:{ports[f'controller-{each}']}" for each in numbers)
        shared = {**_copies(), "controller.quorum.voters": voters, **(settings or {})}
        name = cluster_id(secrets.token_bytes(16))
        self.nodes: Sequence[Kafka] = [
            _Node(
                {**shared, "node.id": each},
                memory,
                {port: ports[f"{port}-{each}"] for port in Kafka.port_names},
                name,
            )
            for each in numbers
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


class _Node(Kafka):
    """One of several nodes: its ports are known to the others before it starts."""

    def __init__(
        self,
        settings: Mapping[str, str | float],
        memory: str,
        ports: Mapping[str, int],
        cluster: str,
    ) -> None:
        super().__init__(settings=settings, memory=memory)
        self._fixed_ports = dict(ports)
        self._ports = dict(ports)
        self._cluster = cluster


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
