"""Each broker of the rig, by its name."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from tests.faults.brokers import kafka, nats, pulsar, rabbitmq, redis
from tests.faults.brokers.ground import Broker, Ground

__all__ = ["BROKERS", "Broker", "Ground", "Serve"]

Serve = Callable[[], AbstractContextManager[Ground]]

BROKERS: Final[Mapping[str, Serve]] = {
    "kafka": kafka.serve,
    "nats": nats.serve,
    "pulsar": pulsar.serve,
    "rabbitmq": rabbitmq.serve,
    "redis": redis.serve,
}
