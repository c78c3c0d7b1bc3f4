"""A node that is cut off from the others, and not from us, loses nothing that was acknowledged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pillarbox.servers import Kafka
from pillarbox.servers.kafka_cluster import KafkaCluster
from pillarbox.servers.network import Network, Place
from tests.faults.cluster import (
    Partition,
    is_whole_again,
    leaders,
    leaders_are_back,
    served,
    without,
)
from tests.faults.history import Faults
from tests.faults.load import catches_up, passes, survives, under_load
from tests.faults.rig import Rig, rigged, seed_of
from tests.support.servers import require

CUT_SECONDS = 20.0
ELECTED_SECONDS = 60.0
# By itself a node that was away would lead again after five minutes.
LEAD_AGAIN = {"leader.imbalance.check.interval.seconds": 2}

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    for server in ("postgres18", "kafka", "network"):
        require(request.config, server)
    with Network(3) as made:
        yield made


@pytest.fixture
def cluster(network: Network) -> KafkaCluster:
    """Three nodes, which the rig starts, each in its place."""
    return KafkaCluster(network=network, settings=LEAD_AGAIN)


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path, cluster: KafkaCluster) -> Iterator[Rig]:
    serve = partial(served, cluster)
    with rigged({"cluster": serve}, tmp_path, seed_of(request.node.name)) as (made,):
        yield made


@dataclass(frozen=True, slots=True)
class Minority:
    """One node, in the place that can be cut off from the others."""

    node: Kafka
    others: Sequence[Kafka]
    place: Place

    def leads(self, asked: Kafka) -> set[Partition]:
        """Return the partitions that it leads, as one of the nodes says."""
        told = leaders(asked).items()
        return {partition for partition, leader in told if leader == self.place.number}

    def is_replaced(self) -> bool:
        return not any(self.leads(other) for other in self.others)


def minorities(cluster: KafkaCluster, network: Network) -> Iterator[Minority]:
    for node, place in zip(cluster.nodes, network.places, strict=True):
        yield Minority(node, without(cluster, node), place)


def test_leaders_that_are_cut_off_from_the_others_and_not_from_us_cost_time_and_nothing_else(
    rig: Rig, cluster: KafkaCluster, network: Network
) -> None:
    under_load(rig, seconds=400, rate=150)

    # Each in turn: the active controller is among them.
    for alone in minorities(cluster, network):
        leaders_are_back(rig, cluster)

        network.cut(alone.place)
        led = alone.leads(alone.node)
        rig.until(alone.is_replaced, "the others have another leader", ELECTED_SECONDS)
        catches_up(rig)
        passes([rig], CUT_SECONDS)
        catches_up(rig)
        # It answers us, and knows nothing of all this: for whoever believes it, it leads.
        assert led
        assert alone.leads(alone.node) == led
        network.heal(alone.place)
        is_whole_again(rig, cluster)

    leaders_are_back(rig, cluster)
    rig.stop_workload()
    assert all(projector.running for projector in rig.projectors)
    survives(rig, Faults(broker=len(network.places)))
