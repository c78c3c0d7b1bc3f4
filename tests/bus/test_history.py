"""Whether a broker still has the first message of a topic, for whoever builds anew from its log."""

import asyncio
from typing import Any
from uuid import uuid4

import nats
from confluent_kafka import TopicPartition
from redis.asyncio import Redis as Client

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.pulsar.admin import Admin
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.bus.subscription import RememberingBus
from pillarbox.servers import Nats, Redis
from pillarbox.testing import message, new_topic
from tests.support.brokers import LinedKafka, LinedPulsar
from tests.support.kafka_admin import TRY_SECONDS, make_topic, tell
from tests.support.waiting import until

LIMIT = 20
EVER = '{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
A_WEEK = '{"retentionTimeInMinutes": 10080, "retentionSizeInMB": -1}'


async def published(bus: Any) -> str:
    """Publish three messages, which are no text, to a new topic."""
    topic = new_topic()
    batch = [message(topic, n, key="k", data=b"\xff\xfe") for n in range(3)]
    assert await bus.publish(batch) == [ACCEPTED] * 3
    return topic


async def test_kafka_names_the_oldest_offset_and_topics_that_are_compacted(
    kafka_server: LinedKafka,
) -> None:
    bus = KafkaMessageBus(kafka_server.bootstrap, partitions=1)
    topic, compacted = await published(bus), new_topic()
    whole = await bus.forgotten([topic])
    cut = TopicPartition(topic, 0, 2)

    def cut_off(client: Any) -> None:
        client.delete_records([cut])[cut].result(TRY_SECONDS)

    await asyncio.to_thread(tell, kafka_server.bootstrap, cut_off)
    config = {"cleanup.policy": "compact"}
    await asyncio.to_thread(make_topic, kafka_server.bootstrap, compacted, config=config)

    said = await bus.forgotten([topic, compacted])
    await bus.close()

    assert whole == []
    assert said == [
        f"topic {compacted} is compacted: it keeps the last of each key",
        f"{topic}[0] begins at offset 2",
    ]


async def test_nats_counts_what_a_stream_has_lost(nats_server: Nats) -> None:
    bus = NatsMessageBus(nats_server.url)
    topic = await published(bus)
    whole = await bus.forgotten([topic, new_topic()])
    client = await nats.connect(nats_server.url)
    stream = await client.jetstream().find_stream_name_by_subject(topic)
    await client.jetstream().delete_msg(stream, 1)
    await client.close()

    said = await bus.forgotten([topic])
    await bus.close()

    assert whole == []
    assert said == [f"stream {stream} begins with message 2 and holds 2 of 3"]


async def test_redis_counts_what_was_trimmed(redis_server: Redis) -> None:
    bus = RedisMessageBus(redis_server.url)
    topic = await published(bus)
    whole = await bus.forgotten([topic, new_topic()])
    made: Any = Client.from_url(redis_server.url)
    async with made as client:
        await client.xtrim(topic, maxlen=1, approximate=False)
        [(first, _)] = await client.xrange(topic)

    said = await bus.forgotten([topic])
    await bus.close()

    assert whole == []
    assert said == [f"stream {topic} begins with {first.decode()} and holds 1 of 3"]


async def test_pulsar_is_whole_where_retention_has_no_end(pulsar_server: LinedPulsar) -> None:
    server, namespace = Admin(pulsar_server.admin_url, None), f"public/n{uuid4().hex}"

    async def tell(method: str, path: str, *body: str) -> None:
        status, _ = await asyncio.to_thread(server._ask, method, path, LIMIT, *body)
        assert status in {200, 204}

    await tell("PUT", f"/namespaces/{namespace}")
    bus = PulsarMessageBus(
        pulsar_server.url, namespace=namespace, admin_url=pulsar_server.admin_url
    )
    dropping = await bus.forgotten(["orders"])
    await tell("POST", f"/namespaces/{namespace}/retention", EVER)
    whole = await bus.forgotten(["orders"])
    await tell("PUT", f"/persistent/{namespace}/orders")
    await tell("POST", f"/persistent/{namespace}/orders/retention", A_WEEK)

    async def heeded() -> bool:
        return bool(await bus.forgotten(["orders"]))

    await until(heeded, "the broker heeds the retention of the topic")
    of_topic = await bus.forgotten(["orders"])
    await bus.close()

    topic = f"{namespace}/orders"
    assert dropping == [
        f"{topic} keeps what was taken for 0 minutes and up to 0 MB: the oldest may be gone"
    ]
    assert whole == []
    assert of_topic == [f"{topic} keeps what was taken for 10,080 minutes: the oldest may be gone"]


async def test_pulsar_without_its_admin_interface_is_not_trusted() -> None:
    bus = PulsarMessageBus("pulsar://pulsar.example:6650")

    said = await bus.forgotten(["orders"])
    await bus.close()

    assert said == ["without admin_url nobody sees how long public/default/orders keep events"]


async def test_memory_keeps_everything_and_queues_remember_nothing() -> None:
    assert await MemoryMessageBus().forgotten([new_topic()]) == ()
    assert not isinstance(RabbitMQMessageBus("amqp://localhost"), RememberingBus)
