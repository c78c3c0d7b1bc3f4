"""What tests of a cluster share: three nodes as ground of a rig, and what they say of themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pillarbox.servers import Kafka
from pillarbox.servers.kafka_cluster import KafkaCluster
from tests.faults.brokers import Ground
from tests.faults.brokers.kafka import make_topics
from tests.faults.load import REST_SECONDS, flows_on
from tests.faults.metadata import partitions
from tests.faults.readers import kafka as reader
from tests.faults.rig import Rig
from tests.faults.workload import TOPICS

Partition = tuple[str, int]


@contextmanager
def served(cluster: KafkaCluster) -> Iterator[Ground]:
    """Run the nodes."""
    with cluster:
        make_topics(cluster.bootstrap, copies=len(cluster.nodes))
        yield Ground(cluster, partial(reader.read, cluster.bootstrap))


def leaders(asked: Kafka) -> dict[Partition, int]:
    """Ask a node who leads each of the workload's partitions."""
    return {(seen.topic, seen.number): seen.leader for seen in partitions(asked, TOPICS)}


def without(cluster: KafkaCluster, lost: Kafka) -> list[Kafka]:
    """Return the other nodes."""
    return [node for node in cluster.nodes if node is not lost]


def leaders_are_back(rig: Rig, cluster: KafkaCluster) -> None:
    """Wait until the first replica of each partition leads it, as all nodes say."""

    def back() -> bool:
        seen = [found for node in cluster.nodes for found in partitions(node, TOPICS)]
        return all(partition.leader == partition.replicas[0] for partition in seen)

    rig.until(back, "leaders are back", REST_SECONDS)


def is_whole_again(rig: Rig, cluster: KafkaCluster) -> None:
    """Wait until every node has everything, and events flow."""

    def whole() -> bool:
        seen = [found for node in cluster.nodes for found in partitions(node, TOPICS)]
        return all(len(partition.in_sync) == len(cluster.nodes) for partition in seen)

    rig.until(whole, "all nodes in sync", REST_SECONDS)
    flows_on(rig)
