"""Each bus with an independent reader of what its broker stored."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

import confluent_kafka
import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.cloudevents import binary_headers
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Kafka, Nats, Server

LIMIT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the broker keeps it."""

    key: str | None
    body: bytes | None
    headers: dict[str, str]

    @property
    def event_id(self) -> str:
        return self.headers["event_id"]


class Rig(Protocol):
    """Make buses on one broker, and read what is stored there."""

    @property
    def name(self) -> str: ...

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus: ...

    async def read(self, topic: str) -> list[Stored]: ...


@dataclass(slots=True)
class MemoryRig:
    name: str = "memory"
    made: list[MemoryMessageBus] = field(default_factory=list)

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        del limit, address
        self.made.append(MemoryMessageBus())
        return self.made[-1]

    async def read(self, topic: str) -> list[Stored]:
        headers = binary_headers("ce_")
        return [
            Stored(message.key, message.body(), dict(headers(message)))
            for bus in self.made
            for message in bus.messages
            if message.topic == topic
        ]


@dataclass(frozen=True, slots=True)
class KafkaRig:
    server: Kafka
    name: str = "kafka"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return KafkaMessageBus(address or self.server.bootstrap, publish_timeout=limit)

    async def read(self, topic: str) -> list[Stored]:
        return await asyncio.to_thread(self._read, topic)

    def _read(self, topic: str) -> list[Stored]:
        consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": "reader",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        try:
            found = consumer.list_topics(topic, 20).topics[topic]
            places = [confluent_kafka.TopicPartition(topic, p, 0) for p in found.partitions]
            consumer.assign(places)
            return list(_until_end(consumer, len(places)))
        finally:
            consumer.close()


def _until_end(consumer: Any, partitions: int) -> Iterator[Stored]:
    while partitions:
        message = consumer.poll(20)
        assert message is not None, "Kafka gives no messages"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            partitions -= 1
            continue
        key, headers = message.key(), message.headers() or []
        yield Stored(
            None if key is None else key.decode(),
            message.value(),
            {name: value.decode() for name, value in headers},
        )


@dataclass(frozen=True, slots=True)
class NatsRig:
    server: Nats
    name: str = "nats"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return NatsMessageBus(address or self.server.url, publish_timeout=limit)

    async def read(self, topic: str) -> list[Stored]:
        client = await nats.connect(self.server.url)
        try:
            stream = client.jetstream()
            # Without acknowledgements a consumer is not held at a thousand messages.
            unacknowledged = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await stream.pull_subscribe(topic, config=unacknowledged)
            waiting = (await reader.consumer_info()).num_pending
            messages = await reader.fetch(waiting, timeout=20) if waiting else []
            return [Stored(None, m.data, dict(m.headers or {})) for m in messages]
        finally:
            await client.close()


def rig_for(server: Server) -> Rig:
    if isinstance(server, Kafka):
        return KafkaRig(server)
    assert isinstance(server, Nats)
    return NatsRig(server)


def new_topic() -> str:
    return f"t{uuid4().hex}.order"


def message(topic: str, number: int = 0, **changes: Any) -> MessageEnvelope:
    """Return an ordinary message with an id of its own."""
    plain = MessageEnvelope(
        event_id=str(uuid4()),
        event_type="OrderPaid",
        data=b'{"n":%d}' % number,
        topic=topic,
        key=f"order-{number}",
        source="shop",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        aggregate_type="Order",
        aggregate_id=f"order-{number}",
        aggregate_version=number,
        event_number=1,
    )
    return plain._replace(**changes)


def kinds(outcomes: Sequence[PublishOutcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


def ids(messages: Sequence[MessageEnvelope] | Sequence[Stored]) -> list[str]:
    return [message.event_id for message in messages]


@pytest.fixture(params=["memory", "nats", "kafka"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each bus in turn, on the servers that all tests share."""
    if request.param == "memory":
        return MemoryRig()
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


_OWN: dict[str, Callable[[], Server]] = {"nats": Nats, "kafka": Kafka}


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.servers(name)) for name in _OWN], scope="module"
)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server that may be killed and frozen, each kind in turn."""
    with _OWN[request.param]() as server:
        yield server
