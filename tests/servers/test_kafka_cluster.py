"""Three nodes of Kafka keep what two of them have acknowledged when one is lost."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pillarbox.servers import Kafka
from pillarbox.servers.kafka_cluster import KafkaCluster
from pillarbox.servers.network import Network
from tests.support.kafka_admin import make_topic
from tests.support.processes import until

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka_admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.faults, pytest.mark.servers("kafka")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        yield running


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    return leader_seen_by(cluster.nodes, topic)


def leader_seen_by(nodes: Sequence[Kafka], topic: str) -> int:
    servers = ",".join(node.bootstrap for node in nodes)
    admin = kafka_admin.AdminClient({"bootstrap.servers": servers})
    return int(admin.list_topics(topic, 20).topics[topic].partitions[0].leader)


def test_another_node_leads_and_has_the_message_when_the_leader_is_killed(
    cluster: KafkaCluster,
) -> None:
    make_topic(cluster.bootstrap, "kept", copies=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    answers: list[Any] = []
    producer.produce("kept", b"1", on_delivery=lambda error, _: answers.append(error))
    producer.flush(20)
    first = leader_of(cluster, "kept")

    cluster.node(first).kill()

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader"}
    )
    consumer.assign([confluent_kafka.TopicPartition("kept", 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert answers == [None]
    assert message.value() == b"1"
    assert leader_of(cluster, "kept") != first

    cluster.restart()
    assert all(node.running for node in cluster.nodes)


def produced(node: Kafka, topic: str, value: bytes, **settings: Any) -> list[Any]:
    """Send one message to a node that leads the topic, or believes to; return the answers."""
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, **settings})
    answers: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: answers.append(error))
    producer.flush(30)
    return answers


def stored(cluster: KafkaCluster, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader"}
    )
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([place])
    found = consumer.consume(end, timeout=30)
    consumer.close()
    return [message.value() for message in found]


@pytest.mark.servers("network")
def test_what_a_leader_has_taken_while_it_was_cut_off_is_gone_when_it_is_healed() -> None:
    with Network(3) as network, KafkaCluster(network=network) as cluster:
        make_topic(cluster.bootstrap, "cut", copies=3)
        assert produced(cluster.nodes[0], "cut", b"before", acks="all") == [None]
        number = leader_of(cluster, "cut")
        cut_off, place = cluster.node(number), network.places[number - 1]
        others = [node for node in cluster.nodes if node is not cut_off]

        network.cut(place)
        # Each only asks the node that it is told of, so that both are believed.
        alone = produced(cut_off, "cut", b"alone", acks=1)
        together = produced(
            cut_off, "cut", b"waits for two", acks="all", **{"message.timeout.ms": 5_000}
        )
        until(lambda: leader_seen_by(others, "cut") != number, "another leader", 60)
        after = produced(others[0], "cut", b"after", acks="all")
        network.heal(place)
        until(lambda: leader_seen_by([cut_off], "cut") != number, "it has heard", 60)

        assert alone == after == [None]
        assert [error.name() for error in together] == ["_MSG_TIMED_OUT"]
        # A node that leads since a moment ago tells less until another has confirmed what it has.
        wanted = [b"before", b"after"]
        until(lambda: stored(cluster, "cut") == wanted, "what two have acknowledged, alone", 60)
