"""A cluster that loses nodes goes on while most are left, and waits while they are not."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pillarbox.servers import Kafka
from pillarbox.servers.kafka_cluster import KafkaCluster
from tests.faults.cluster import is_whole_again, leaders, served, without
from tests.faults.history import Faults
from tests.faults.load import flows_on, passes, survives, under_load
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


def leader(cluster: KafkaCluster, asked: Kafka) -> Kafka:
    """Name the node that leads the workload's first partition, as this one says."""
    return cluster.node(leaders(asked)[TOPICS[0], 0])


def test_leaders_that_are_lost_and_a_lost_majority_cost_time_and_nothing_else(
    rig: Rig, cluster: KafkaCluster
) -> None:
    under_load(rig, seconds=300, rate=150)

    killed = leader(cluster, cluster.nodes[0])
    killed.kill()
    flows_on(rig, more=500)
    killed.restart()
    is_whole_again(rig, cluster)

    # Silent for the others and for us: its session ends, and it wakes up as a former leader.
    frozen = leader(cluster, cluster.nodes[0])
    frozen.freeze()
    passes([rig], BEYOND_THE_SESSION)
    assert all(leader(cluster, node) is not frozen for node in without(cluster, frozen))
    flows_on(rig, more=500)
    frozen.thaw()
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
