"""Each bus with an independent reader of what its broker stored."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pillarbox.servers import Nats, RabbitMq, Redis, Server
from tests.bus.rig import Rig
from tests.bus.rig_kafka import KafkaRig
from tests.bus.rig_memory import MemoryRig
from tests.bus.rig_nats import NatsRig
from tests.bus.rig_pulsar import KeptPulsar, PulsarRig
from tests.bus.rig_rabbitmq import RabbitMqRig
from tests.bus.rig_redis import RedisRig
from tests.support.brokers import LinedKafka

_SERVERS: dict[str, Callable[[], Server]] = {
    "nats": Nats,
    "kafka": LinedKafka,
    "pulsar": KeptPulsar,
    "rabbitmq": RabbitMq,
    "redis": Redis,
}
BROKERS = tuple(_SERVERS)
_RIGS: dict[str, Callable[[Any], Rig]] = {
    "nats": NatsRig,
    "kafka": KafkaRig,
    "pulsar": PulsarRig,
    "rabbitmq": RabbitMqRig,
    "redis": RedisRig,
}


def rig_for(server: Server) -> Rig:
    """Return the rig of a server that nobody kills."""
    return _RIGS[server.name](server)


def rig_of_own(server: Server) -> Rig:
    """Return the rig of a server that may be killed."""
    return RabbitMqRig(server, killed=True) if isinstance(server, RabbitMq) else rig_for(server)


@pytest.fixture(params=["memory", *BROKERS])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each bus in turn, on the servers that all tests share."""
    if request.param == "memory":
        return MemoryRig()
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.servers(name)) for name in BROKERS],
    scope="module",
)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server that may be killed and frozen, each kind in turn."""
    with _SERVERS[request.param]() as server:
        yield server
