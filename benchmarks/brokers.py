"""The brokers of the projector's suites: a topic made afresh for each side, and what it holds."""

import asyncio
import contextlib
import time
from collections import Counter
from typing import Any, Final

import nats
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # is public
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NotFoundError

from benchmarks.backlog import TOPIC
from pillarbox.servers import Kafka, Nats

PARTITIONS: Final = 6
STREAM: Final = "shop"
_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.05
_WARM_UP_MANY: Final = 90_000
_WARM_UP_SINGLE: Final = 8_000
_BODY: Final = b"x" * 400

Message = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
"""A message's key, body and sorted headers."""


class KafkaTopic:
    """One topic of six partitions."""

    side: Final = "kafka_by_hand"

    def __init__(self, server: Kafka) -> None:
        self.url = server.url
        self.address = server.bootstrap
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})

    async def start_afresh(self) -> None:
        """Delete the topic with its messages and make it again."""
        if TOPIC in self._admin.list_topics(timeout=_SECONDS).topics:
            self._admin.delete_topics([TOPIC], operation_timeout=_SECONDS)[TOPIC].result()
        limit = time.monotonic() + _SECONDS
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
        limit = time.monotonic() + _SECONDS
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
        producer.produce(TOPIC, _BODY, str(number))
        producer.poll(0)
    producer.flush(_SECONDS)
    for number in range(_WARM_UP_SINGLE):
        producer.produce(TOPIC, _BODY, str(number))
        producer.flush(_SECONDS)


class NatsStream:
    """One stream; on disk each message is synced, in memory the client is the limit."""

    side: Final = "nats_by_hand"

    def __init__(self, server: Nats, storage: StorageType) -> None:
        self.url = self.address = server.url
        self._storage = storage

    async def start_afresh(self) -> None:
        """Delete the stream with its messages and the ids that it remembers; make it again."""
        async with await nats.connect(self.url) as client:
            js = client.jetstream()
            with contextlib.suppress(NotFoundError):
                await js.delete_stream(STREAM)
            config = StreamConfig(name=STREAM, subjects=[f"{STREAM}.>"], storage=self._storage)
            await js.add_stream(config)

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages."""
        found: Counter[Message] = Counter()
        async with await nats.connect(self.url) as client:
            inbox: Any = await client.jetstream().subscribe(f"{STREAM}.>", ordered_consumer=True)
            while found.total() < count:
                message = await inbox.next_msg(timeout=_SECONDS)
                headers = ((name, value.encode()) for name, value in message.headers.items())
                found[message.subject.encode(), message.data, tuple(sorted(headers))] += 1
        return found


Broker = KafkaTopic | NatsStream
