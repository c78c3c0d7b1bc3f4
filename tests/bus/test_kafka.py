"""What only Kafka does: no message passes an earlier one of its key that failed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka import admin

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.kafka.producer import ProducerLife
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, Refused, Unavailable, Unknown
from pillarbox.errors import InvalidConfig, InvalidTopic
from pillarbox.servers import Kafka
from tests.bus.rig import ids, message, new_topic
from tests.bus.rig_kafka import KafkaRig

TOO_LARGE = b"x" * 5_000


@pytest.fixture
async def bus(kafka_server: Kafka) -> AsyncIterator[MessageBus]:
    made = KafkaMessageBus(kafka_server.bootstrap)
    yield made
    await made.close()


@pytest.fixture
async def small_topic(kafka_server: Kafka) -> str:
    """Make a topic that refuses messages over 2,000 bytes, which the client lets pass."""
    topic = new_topic()
    untyped: Any = admin
    client = untyped.AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    new = untyped.NewTopic(topic, 3, 1, config={"max.message.bytes": "2000"})
    await asyncio.to_thread(client.create_topics([new])[topic].result, 20)
    return topic


async def test_nothing_of_a_key_is_stored_after_a_refused_message(
    kafka_server: Kafka, bus: MessageBus, small_topic: str
) -> None:
    batch = [message(small_topic, n, key="k") for n in range(4)]
    batch[1] = batch[1]._replace(data=TOO_LARGE)

    outcomes = await bus.publish(batch)

    assert isinstance(outcomes[1], Refused)
    assert not outcomes[1].certain
    assert not any(isinstance(outcome, Accepted) for outcome in outcomes[1:])
    assert ids(await KafkaRig(kafka_server).read(small_topic)) in ([], ids(batch[:1]))


@pytest.mark.parametrize("apart", [1, 2, 3, 5, 10, 100])
async def test_nor_by_calls_that_overlap(
    kafka_server: Kafka, bus: MessageBus, small_topic: str, apart: int
) -> None:
    refused = message(small_topic, key="k", data=TOO_LARGE)
    calls = [asyncio.ensure_future(bus.publish([refused]))]
    while not calls[0].done():
        calls.append(asyncio.ensure_future(bus.publish([message(small_topic, key="k")])))
        for _ in range(apart):
            await asyncio.sleep(0)
    outcomes = [(await call)[0] for call in calls]

    assert isinstance(outcomes[0], Refused)
    assert not any(isinstance(outcome, Accepted) for outcome in outcomes)
    assert await KafkaRig(kafka_server).read(small_topic) == []


async def test_a_call_made_after_the_failure_is_served_by_a_new_producer(
    bus: MessageBus, small_topic: str
) -> None:
    await asyncio.create_task(bus.publish([message(small_topic, key="k", data=TOO_LARGE)]))
    await asyncio.sleep(0)

    assert await bus.publish([message(small_topic, key="k")]) == [ACCEPTED]


async def test_one_by_one_finds_the_guilty_message_and_stops_its_key_only(
    kafka_server: Kafka, bus: MessageBus, small_topic: str
) -> None:
    first, later = message(small_topic, key="k"), message(small_topic, key="k")
    guilty = message(small_topic, key="k", data=TOO_LARGE)
    innocent = message(small_topic, key="other")

    outcomes = await bus.publish([first, guilty, later, innocent], one_by_one=True)

    assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Unknown, Accepted]
    assert isinstance(outcomes[1], Refused)
    assert outcomes[1].certain
    stored = ids(await KafkaRig(kafka_server).read(small_topic))
    assert sorted(stored) == sorted(ids([first, innocent]))


async def test_a_full_queue_of_the_client_is_waited_for(kafka_server: Kafka) -> None:
    topic = new_topic()
    bus = KafkaMessageBus(
        kafka_server.bootstrap, settings={"queue.buffering.max.messages": 10, "linger.ms": 5}
    )

    outcomes = await bus.publish([message(topic, n) for n in range(500)])
    await bus.close()

    assert outcomes == [ACCEPTED] * 500


async def test_a_missing_topic_on_another_machine_is_unavailable_and_others_flow(
    kafka_server: Kafka, bus: MessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "_makes_topics", False)
    there, missing = new_topic(), new_topic()
    await bus.apply([there])

    outcomes = await bus.publish([message(missing, 1), message(there, 2), message(missing, 3)])

    assert isinstance(outcomes[0], Unavailable)
    assert outcomes[0].topic == missing
    assert outcomes[1] == ACCEPTED
    assert outcomes[2] == outcomes[0]
    await bus.apply([missing])
    assert await bus.publish([message(missing, 1)]) == [ACCEPTED]


async def test_structured_mode_sends_one_json_object(kafka_server: Kafka) -> None:
    topic = new_topic()
    bus = KafkaMessageBus(kafka_server.bootstrap, content_mode="structured")

    outcomes = await bus.publish([message(topic, data=b'{"a": 1.50}')])
    await bus.close()

    assert outcomes == [ACCEPTED]
    [stored] = await KafkaRig(kafka_server).read(topic)
    assert stored.headers["content-type"].startswith("application/cloudevents+json")
    assert stored.body is not None
    assert b'"data":{"a": 1.50}' in stored.body


async def test_a_message_without_a_topic_is_a_mistake_of_the_caller(bus: MessageBus) -> None:
    with pytest.raises(InvalidTopic):
        await bus.publish([message("t")._replace(topic=None)])


@pytest.mark.parametrize("name", ["acks", "enable.idempotence", "message.timeout.ms"])
def test_settings_that_order_rests_on_cannot_be_changed(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        KafkaMessageBus("localhost:9092", settings={name: 1})


async def test_weak_topics_are_named_at_start(kafka_server: Kafka, bus: MessageBus) -> None:
    await bus.apply([new_topic()])

    assert any("copies" in said for said in await bus.start())


async def test_an_idle_life_has_nothing_under_way(bus: MessageBus) -> None:
    assert isinstance(bus, KafkaMessageBus)
    assert await bus.publish([message(new_topic())]) == [ACCEPTED]

    assert isinstance(bus._life, ProducerLife)
    assert not bus._life.failed
