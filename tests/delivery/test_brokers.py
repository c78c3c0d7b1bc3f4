"""Refusals and rights on real brokers: who is held, who is counted."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from pillarbox import KafkaMessageBus
from pillarbox.servers import Kafka
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")
SMALL = 20_000


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[Kafka]:
    """A broker that knows rights; without any rule everybody may do everything."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:admin",
    }
    with Kafka(settings=settings) as server:
        yield server


@pytest.fixture
async def kafka_bus(kafka_server: Kafka) -> AsyncIterator[KafkaMessageBus]:
    bus = KafkaMessageBus(servers(kafka_server))
    yield bus
    await bus.close()


def servers(kafka: Kafka) -> str:
    return kafka.url.removeprefix("kafka://")


def limit_topic(admin: AdminClient, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def log_of(kafka: Kafka, topic: str) -> list[tuple[str, str]]:
    """Read every message of a topic: its key and its event id, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers(kafka),
            "group.id": uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        found: list[tuple[str, str]] = []
        for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, 10)
            consumer.assign([place])
            for _ in range(end):
                message = consumer.poll(10)
                assert message is not None
                headers: Any = dict(cast("Any", message.headers()))
                key: Any = message.key() or b""
                found.append((key.decode(), headers["event_id"].decode()))
        return found
    finally:
        consumer.close()


def first_copies(found: list[tuple[str, str]], key: str) -> list[str]:
    return list(dict.fromkeys(event_id for of_key, event_id in found if of_key == key))


async def enlarge(shop: Shop, event_id: str) -> None:
    """Make an event larger than its topic takes."""
    await shop.run(
        "UPDATE outbox SET payload = to_json((SELECT string_agg(md5(n::text), '') "
        f"FROM generate_series(1, 2000) AS n)) WHERE id = '{event_id}'"
    )


async def test_a_refused_message_in_the_middle_of_a_hot_key_holds_its_successors(
    shop: Shop, kafka_server: Kafka, kafka_bus: KafkaMessageBus, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": servers(kafka_server)})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(10)
    limit_topic(admin, topic, SMALL)
    ids = await shop.add(*["hot"] * 120, topic=topic)
    await enlarge(shop, ids[60])

    async with shop.configured(max_retry_attempts=500).projecting(message_bus=kafka_bus):
        await shop.sent(ids[:60], limit=30)
        others = await shop.add("cold", topic=topic)
        await shop.sent(others, limit=30)
        held = await asyncio.to_thread(log_of, kafka_server, topic)
        assert first_copies(held, "hot") == ids[:60]
        limit_topic(admin, topic, 1_000_000)
        await shop.sent(ids, limit=30)

    found = await asyncio.to_thread(log_of, kafka_server, topic)
    assert first_copies(found, "hot") == ids
    assert {i for i, n in (await shop.attempts()).items() if n} == {ids[60]}


async def test_one_refused_among_many_keys_costs_no_other_an_attempt(
    shop: Shop, kafka_server: Kafka, kafka_bus: KafkaMessageBus, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": servers(kafka_server)})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(10)
    limit_topic(admin, topic, SMALL)
    ids = await shop.add(*[f"k{n}" for n in range(1000)], topic=topic)
    bad = ids[500]
    await enlarge(shop, bad)

    async with shop.configured(max_retry_attempts=2).projecting(message_bus=kafka_bus):
        await shop.sent([i for i in ids if i != bad], limit=60)
        await shop.status([bad], "DEAD", limit=30)

    assert {i for i, n in (await shop.attempts()).items() if n} == {bad}


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.servers("kafka")
async def test_a_right_that_is_gone_for_a_minute_costs_no_attempt_and_no_order(
    shop: Shop, guarded_kafka: Kafka, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": servers(guarded_kafka)})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(10)
    bus = KafkaMessageBus(servers(guarded_kafka))
    denied = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    ids: list[str] = []
    minute_is_over = threading.Event()

    async with shop.projecting(message_bus=bus):
        ids += await shop.add(*["a", "b", "c"] * 10, topic=topic)
        await shop.sent(ids, limit=30)
        for future in admin.create_acls([denied]).values():
            future.result(10)
        timer = threading.Timer(60, minute_is_over.set)
        timer.start()
        while not minute_is_over.is_set():
            ids += await shop.add(*["a", "b", "c"] * 2, topic=topic)
            await asyncio.to_thread(minute_is_over.wait, 0.2)
        for lifted in admin.delete_acls([as_filter(denied)]).values():
            lifted.result(10)
        await shop.sent(ids, limit=90)
    await bus.close()

    statuses = {event.status for event in await shop.database.events()}
    assert statuses == {"SENT"}
    assert set((await shop.attempts()).values()) == {0}
    found = await asyncio.to_thread(log_of, guarded_kafka, topic)
    for number, key in enumerate("abc"):
        assert first_copies(found, key) == ids[number::3]


def as_filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
