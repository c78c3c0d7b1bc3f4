"""Three nodes of Kafka keep what they have acknowledged when one is lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from pillarbox.servers.kafka_cluster import KafkaCluster

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka_admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.faults, pytest.mark.servers("kafka")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        yield running


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    admin = kafka_admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, 20).topics[topic].partitions[0].leader)


def test_another_node_leads_and_has_the_message_when_the_leader_is_killed(
    cluster: KafkaCluster,
) -> None:
    admin = kafka_admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([kafka_admin.NewTopic("kept", 1, 3)])["kept"].result(20)
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
