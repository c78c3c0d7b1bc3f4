"""A topic of Kafka."""

import asyncio
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # is public

from benchmarks.backlog import TOPIC
from benchmarks.brokers.broker import BODY, LIMIT_SECONDS, Message
from pillarbox.servers import Kafka

PARTITIONS: Final = 6
_RETRY_SECONDS: Final = 0.05
_WARM_UP_MANY: Final = 90_000
_WARM_UP_SINGLE: Final = 25_000


class KafkaTopic:
    """One topic of six partitions."""

    side: Final = "kafka_by_hand"

    def __init__(self, server: Kafka) -> None:
        self.url = server.url
        self.address = server.bootstrap
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})

    async def start_afresh(self) -> None:
        """Delete the topic with its messages and make it again."""
        if TOPIC in self._admin.list_topics(timeout=LIMIT_SECONDS).topics:
            self._admin.delete_topics([TOPIC], operation_timeout=LIMIT_SECONDS)[TOPIC].result()
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
            except KafkaException:
                # A topic that is being deleted has its name for a moment longer.
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def warm_up(self) -> None:
        """Publish many messages and single ones: a broker that has just started is three times slower."""
        await self.start_afresh()
        await asyncio.to_thread(_warm_up, self.address)
        await self.start_afresh()

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": f"check-{time.time_ns()}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        found: Counter[Message] = Counter()
        limit = time.monotonic() + LIMIT_SECONDS
        while found.total() < count and time.monotonic() < limit:
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                headers: Any = message.headers()
                found[message.key(), message.value(), tuple(sorted(headers))] += 1
        consumer.close()
        return found


def _warm_up(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    producer = Producer(settings)
    for number in range(_WARM_UP_MANY):
        producer.produce(TOPIC, BODY, str(number))
        producer.poll(0)
    producer.flush(LIMIT_SECONDS)
    for number in range(_WARM_UP_SINGLE):
        producer.produce(TOPIC, BODY, str(number))
        producer.flush(LIMIT_SECONDS)
