"""Kafka for the rig."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pillarbox.servers import Kafka
from tests.faults.brokers.ground import Ground
from tests.faults.readers import kafka as reader
from tests.faults.workload import TOPICS

_PARTITIONS: Final = 4
_WAIT_SECONDS: Final = 30


@contextmanager
def serve() -> Iterator[Ground]:
    """Run one node."""
    with Kafka() as server:
        make_topics(server.bootstrap, copies=1)
        yield Ground(server, partial(reader.read, server.bootstrap))


def make_topics(bootstrap: str, copies: int) -> None:
    """Make the topics of the workload."""
    # The broker's own time tells the order of events that one key has in two topics.
    config = {"message.timestamp.type": "LogAppendTime"}
    topics = [NewTopic(topic, _PARTITIONS, copies, config=config) for topic in TOPICS]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics, operation_timeout=_WAIT_SECONDS).values():
        made.result(_WAIT_SECONDS)
