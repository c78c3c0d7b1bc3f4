"""The brokers of the drills: run them, make a consumer's topics, and let it begin anew."""

import asyncio
import http
import http.client
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import nats
from confluent_kafka import KafkaException

from pillarbox.bus.partition import partitions_of
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.servers import Kafka, Nats, RabbitMq, Redis, Server
from tests.bus.rig_pulsar import KeptPulsar
from tests.bus.subscription_rig_kafka import KafkaSubscriptionRig
from tests.bus.subscription_rig_nats import NatsSubscriptionRig
from tests.bus.subscription_rig_redis import RedisSubscriptionRig
from tests.faults.consumers.buses import PARTITIONS, drill_bus
from tests.support.waiting import until

_WAIT_SECONDS: Final = 60.0
_WINDOW: Final = 0.1

Rewind = Callable[[Any, SubscriptionRequest], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker that runs; `admin` is the address of its interface, if it has one."""

    name: str
    server: Server
    admin: str = ""

    def prepare(self, topic: str, consumers: Sequence[str]) -> None:
        """Make a topic, and let each consumer be known before anything is published."""
        asyncio.run(self._prepare(topic, consumers))

    async def _prepare(self, topic: str, consumers: Sequence[str]) -> None:
        bus = drill_bus(self.server.url, self.admin)
        await bus.apply([topic])
        for consumer in consumers:
            first = bus.subscribe(SubscriptionRequest(consumer, (topic,)))
            await first.start(_nothing)
            await first.close()
        await bus.close()
        if isinstance(self.server, Nats):
            await _let_copies_in(self.server.url, topic)

    @property
    def rewinds(self) -> bool:
        """Whether the broker can deliver again what was acknowledged."""
        return self.name in _REWINDS

    def rewind(self, topic: str, consumers: Sequence[str]) -> None:
        """Let consumers without a member get everything again."""
        for consumer in consumers:
            request = SubscriptionRequest(consumer, (topic,))
            asyncio.run(_REWINDS[self.name](self.server, request))


async def _nothing(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""


async def _let_copies_in(url: str, topic: str) -> None:
    """Have the server store a message a second time, as it would after its window."""
    client = await nats.connect(url)
    try:
        manager = client.jsm()
        name = await manager.find_stream_name_by_subject(partitions_of(topic, PARTITIONS)[0])
        config = (await manager.stream_info(name)).config
        config.duplicate_window = _WINDOW
        await manager.update_stream(config)
    finally:
        await client.close()


async def _rewind_kafka(server: Kafka, request: SubscriptionRequest) -> None:
    async def rewound() -> bool:
        try:
            await KafkaSubscriptionRig(server).rewind(request)
        except KafkaException:  # the members that were killed are not missed yet
            return False
        return True

    await until(rewound, "the group has no member", _WAIT_SECONDS)


async def _rewind_nats(server: Nats, request: SubscriptionRequest) -> None:
    await NatsSubscriptionRig(server, PARTITIONS).rewind(request)


async def _rewind_redis(server: Redis, request: SubscriptionRequest) -> None:
    await RedisSubscriptionRig(server, partitions=PARTITIONS).rewind(request)


async def _rewind_pulsar(server: KeptPulsar, request: SubscriptionRequest) -> None:
    [topic] = request.topics
    past = int((time.time() - timedelta(hours=1).total_seconds()) * 1000)
    path = f"persistent/public/default/{topic}/subscription/{request.consumer}/resetcursor/{past}"
    await asyncio.to_thread(_post, server.admin_url, f"/admin/v2/{path}")


def _post(address: str, path: str) -> None:
    connection = http.client.HTTPConnection(address.partition("//")[2], timeout=_WAIT_SECONDS)
    try:
        connection.request("POST", path)
        answer = connection.getresponse()
        assert answer.status < http.HTTPStatus.BAD_REQUEST, (answer.status, answer.read())
    finally:
        connection.close()


_REWINDS: Final[Mapping[str, Rewind]] = {
    "kafka": _rewind_kafka,
    "nats": _rewind_nats,
    "pulsar": _rewind_pulsar,
    "redis": _rewind_redis,
}


def _pulsar() -> Server:
    server = KeptPulsar()
    server._settings["keepAliveIntervalSeconds"] = 3  # a frozen member is missed soon
    return server


_SERVERS: Final[Mapping[str, Callable[[], Server]]] = {
    # The shortest that members may ask for, so that the dead are missed soon.
    "kafka": lambda: Kafka(settings={"group.min.session.timeout.ms": 1_000}),
    "nats": Nats,
    "pulsar": _pulsar,
    # Whoever has a message for longer loses its channel, with the next look a minute later.
    "rabbitmq": lambda: RabbitMq(settings={"consumer_timeout": 20_000}),
    "redis": Redis,
}
BROKERS: Final = tuple(_SERVERS)


def started(name: str) -> Ground:
    """Start a broker of our own."""
    server = _SERVERS[name]().start()
    return Ground(name, server, server.admin_url if isinstance(server, KeptPulsar) else "")
