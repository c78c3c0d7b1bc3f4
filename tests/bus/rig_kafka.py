"""Kafka, read by a consumer of its own client."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import admin as untyped_admin

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Kafka
from pillarbox.testing import Binding
from tests.bus.rig import LIMIT, Stored, nobody

# Between a request of many messages, which the client fills up to a megabyte, and the refused one.
TOPIC_LIMIT = 1_200_000
TOO_LARGE = b"x" * 1_500_000

_admin: Any = untyped_admin


@dataclass(frozen=True, slots=True)
class KafkaRig:
    server: Kafka
    name: str = "kafka"
    binding: Binding = "kafka"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return KafkaMessageBus(address or self.server.bootstrap, publish_timeout=limit)

    def structured_bus(self) -> MessageBus:
        return KafkaMessageBus(self.server.bootstrap, content_mode="structured")

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=nobody())

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        await asyncio.to_thread(self._make_limited, message.topic)
        return message._replace(data=TOO_LARGE)

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

    def _make_limited(self, topic: str | None) -> None:
        new = _admin.NewTopic(topic, 3, 1, config={"max.message.bytes": str(TOPIC_LIMIT)})
        # Held by its name until the answer: a client that nobody holds ends.
        client: Any = _admin.AdminClient({"bootstrap.servers": self.server.bootstrap})
        client.create_topics([new])[topic].result(20)


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
