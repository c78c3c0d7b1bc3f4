"""Kafka for the rig."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from pillarbox.servers import Kafka
from tests.faults.brokers.ground import Ground
from tests.faults.readers import kafka as reader
from tests.faults.workload import TOPICS
from tests.support.kafka_admin import make_topic

_PARTITIONS: Final = 4


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
    for topic in TOPICS:
        make_topic(bootstrap, topic, partitions=_PARTITIONS, copies=copies, config=config)
