"""A cluster that loses nodes goes on while most are left, and waits while they are not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.servers import Kafka
from pillarbox.servers.kafka_cluster import KafkaCluster
from tests.faults.brokers import Ground
from tests.faults.brokers.kafka import make_topics
from tests.faults.history import Faults
from tests.faults.load import REST_SECONDS, flows_on, passes, survives, under_load
from tests.faults.readers import kafka as reader
from tests.faults.rig import Rig, rigged, seed_of, side_by_side
from tests.faults.workload import TOPICS
from tests.support.servers import require

BEYOND_THE_SESSION = 8.0
SILENCE_SECONDS = 8.0
SETTLED_SECONDS = 3.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def cluster() -> KafkaCluster:
    """Three nodes, which the rig starts."""
    return KafkaCluster()


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path, cluster: KafkaCluster) -> Iterator[Rig]:
    for server in ("postgres18", "kafka"):
        require(request.config, server)
    serve = partial(served, cluster)
    with rigged({"cluster": serve}, tmp_path, seed_of(request.node.name)) as (made,):
        yield made


@contextmanager
def served(cluster: KafkaCluster) -> Iterator[Ground]:
    with cluster:
        make_topics(cluster.bootstrap, copies=3)
        yield Ground(cluster, partial(reader.read, cluster.bootstrap))


def partition(asked: Sequence[Kafka]) -> Any:
    """Ask these nodes for the state of one partition of the workload's first topic."""
    servers = ",".join(node.bootstrap for node in asked)
    admin = AdminClient({"bootstrap.servers": servers})
    return admin.list_topics(TOPICS[0], 20).topics[TOPICS[0]].partitions[0]


def without(cluster: KafkaCluster, lost: Kafka) -> list[Kafka]:
    return [node for node in cluster.nodes if node is not lost]


def is_whole_again(rig: Rig, cluster: KafkaCluster) -> None:
    whole = len(cluster.nodes)
    rig.until(
        lambda: len(partition(cluster.nodes).isrs) == whole, "all nodes in sync", REST_SECONDS
    )
    flows_on(rig)


def test_leaders_that_are_lost_and_a_lost_majority_cost_time_and_nothing_else(
    rig: Rig, cluster: KafkaCluster
) -> None:
    under_load(rig, seconds=300, rate=150)

    leader = cluster.node(partition(cluster.nodes).leader)
    leader.kill()
    flows_on(rig, more=500)
    leader.restart()
    is_whole_again(rig, cluster)

    # Cut off from the others and from us: its session ends, and it wakes up as a former leader.
    cut_off = cluster.node(partition(cluster.nodes).leader)
    cut_off.freeze()
    passes([rig], BEYOND_THE_SESSION)
    assert cluster.node(partition(without(cluster, cut_off)).leader) is not cut_off
    flows_on(rig, more=500)
    cut_off.thaw()
    is_whole_again(rig, cluster)

    lost = cluster.nodes[1:]
    for node in lost:
        node.kill()
    passes([rig], SETTLED_SECONDS)
    before = rig.sent()
    passes([rig], SILENCE_SECONDS)
    assert rig.sent() == before
    assert rig.waiting() > 0
    side_by_side(Kafka.restart, lost)
    is_whole_again(rig, cluster)

    rig.stop_workload()
    assert all(projector.running for projector in rig.projectors)
    survives(rig, Faults(broker=40))
