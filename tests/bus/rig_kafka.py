"""Kafka, read by a consumer of its own client."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import confluent_kafka

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.servers import Kafka
from tests.bus.rig import LIMIT, Stored


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
