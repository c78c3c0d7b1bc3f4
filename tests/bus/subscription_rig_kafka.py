"""Kafka for tests of subscriptions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import confluent_kafka

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Kafka
from pillarbox.testing import RawMessage
from tests.bus.rig import nobody
from tests.bus.subscription_rig import publish_all
from tests.support.kafka_admin import TRY_SECONDS, tell

# The shortest that brokers allow; the poll interval may not be shorter.
SESSION = timedelta(seconds=6)


@dataclass(frozen=True, slots=True)
class KafkaSubscriptionRig:
    server: Kafka
    name: str = "kafka"

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self._bus().subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        bus = KafkaMessageBus(self.server.bootstrap)
        await bus.apply(request.topics)
        await bus.close()

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await publish_all(self._bus(), messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        await asyncio.to_thread(self._publish_raw, topic, messages)

    async def rewind(self, request: SubscriptionRequest) -> None:
        await asyncio.to_thread(self._rewind, request)

    def hurried(self, request: SubscriptionRequest) -> tuple[Subscription, timedelta]:
        milliseconds = int(SESSION.total_seconds() * 1000)
        bus = KafkaMessageBus(
            self.server.bootstrap,
            settings={"session.timeout.ms": milliseconds, "max.poll.interval.ms": milliseconds},
        )
        return bus.subscribe(request), SESSION

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        return KafkaMessageBus(nobody(), publish_timeout=timedelta(seconds=5)).subscribe(request)

    def _bus(self) -> KafkaMessageBus:
        milliseconds = int(SESSION.total_seconds() * 1000)
        return KafkaMessageBus(self.server.bootstrap, settings={"session.timeout.ms": milliseconds})

    def _publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        producer: Any = confluent_kafka.Producer({"bootstrap.servers": self.server.bootstrap})
        for raw in messages:
            producer.produce(topic, raw.body, raw.key, 0, headers=list(raw.headers.items()))
        assert producer.flush(20) == 0

    def _rewind(self, request: SubscriptionRequest) -> None:
        [topic] = request.topics
        group: Any = confluent_kafka

        def set_back(client: Any) -> None:
            found = client.list_topics(topic, TRY_SECONDS).topics[topic].partitions
            begin = [confluent_kafka.TopicPartition(topic, number, 0) for number in found]
            wanted = group.ConsumerGroupTopicPartitions(request.consumer, begin)
            answers = client.alter_consumer_group_offsets([wanted])
            answers[request.consumer].result(TRY_SECONDS)

        tell(self.server.bootstrap, set_back)
