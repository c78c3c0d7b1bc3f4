"""What only Kafka does: no message passes an earlier one of its key that failed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from pillarbox.bus.handover import CLOSED
from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.kafka.login import Login
from pillarbox.bus.kafka.producer import ProducerLife
from pillarbox.bus.kafka.topics import Topics
from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, Refused, Unavailable, Unknown
from pillarbox.errors import InvalidConfig, InvalidTopic
from tests.bus.rig import ids, message, new_topic, nobody
from tests.bus.rig_kafka import KafkaRig
from tests.support.brokers import LinedKafka
from tests.support.kafka_admin import make_topic

TOO_LARGE = b"x" * 5_000


@pytest.fixture
async def bus(kafka_server: LinedKafka) -> AsyncIterator[MessageBus]:
    made = KafkaMessageBus(kafka_server.bootstrap)
    yield made
    await made.close()


@pytest.fixture
async def small_topic(kafka_server: LinedKafka) -> str:
    """Make a topic that refuses messages over 2,000 bytes, which the client lets pass."""
    topic = new_topic()
    config = {"max.message.bytes": "2000"}
    await asyncio.to_thread(make_topic, kafka_server.bootstrap, topic, partitions=3, config=config)
    return topic


async def test_settings_that_the_broker_does_not_tell_in_time_are_not_judged(
    kafka_server: LinedKafka, small_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Topics._listed

    def list_and_freeze(topics: Topics, *arguments: Any) -> Any:
        found = listed(topics, *arguments)
        kafka_server.freeze()
        return found

    bus = KafkaMessageBus(kafka_server.bootstrap, publish_timeout=timedelta(seconds=5))
    monkeypatch.setattr(Topics, "_listed", list_and_freeze)
    try:
        said = await bus.start()
    finally:
        kafka_server.thaw()
        try:  # before all else, for the tests to come: it serves again
            await asyncio.to_thread(make_topic, kafka_server.bootstrap, new_topic())
        finally:
            await bus.close()

    assert any("copies are kept" in words for words in said)
    assert not any(small_topic in words and "message" in words for words in said)


async def test_nothing_of_a_key_is_stored_after_a_refused_message(
    kafka_server: LinedKafka, bus: MessageBus, small_topic: str
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
    kafka_server: LinedKafka, bus: MessageBus, small_topic: str, apart: int
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


async def test_a_new_producer_stands_only_when_every_caller_has_heard_of_the_end() -> None:
    class Call:
        """A call that has not returned, because it waits for its turn."""

    life = ProducerLife(
        lambda _: {"bootstrap.servers": nobody()},
        lambda sent: (sent.body(), []),
        Login(None),
        {},
        gapless=True,
    )
    waiting, dropped = Call(), Call()
    life.enter(waiting)
    life.enter(dropped)

    await life.end(CLOSED)
    del dropped  # a coroutine that nobody awaits
    assert (life.ended, life.retired) == (True, False)
    life.leave(waiting)
    assert not life.retired
    for _ in range(3):
        await asyncio.sleep(0)

    assert life.retired


async def test_one_by_one_finds_the_guilty_message_and_stops_its_key_only(
    kafka_server: LinedKafka, bus: MessageBus, small_topic: str
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


async def test_a_full_queue_of_the_client_is_waited_for(kafka_server: LinedKafka) -> None:
    topic = new_topic()
    bus = KafkaMessageBus(
        kafka_server.bootstrap, settings={"queue.buffering.max.messages": 10, "linger.ms": 5}
    )

    outcomes = await bus.publish([message(topic, n) for n in range(500)])
    await bus.close()

    assert outcomes == [ACCEPTED] * 500


async def test_a_missing_topic_on_another_machine_is_unavailable_and_others_flow(
    kafka_server: LinedKafka, bus: MessageBus, monkeypatch: pytest.MonkeyPatch
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


async def test_structured_mode_sends_one_json_object(kafka_server: LinedKafka) -> None:
    topic = new_topic()
    bus = KafkaMessageBus(kafka_server.bootstrap, content_mode="structured")

    outcomes = await bus.publish([message(topic, data=b'{"a": 1.50}')])
    await bus.close()

    assert outcomes == [ACCEPTED]
    [stored] = await KafkaRig(kafka_server).read(topic)
    assert stored.headers["content-type"].startswith("application/cloudevents+json")
    assert stored.body is not None
    assert b'"data":{"a": 1.50}' in stored.body


# What the Java client, and so Debezium, makes of these keys: the vectors of Kafka's own tests.
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "abc": 479470107,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


async def test_a_key_has_the_partition_that_the_java_client_gives_it(
    kafka_server: LinedKafka, bus: MessageBus
) -> None:
    topic = new_topic()
    await bus.apply([topic])

    assert await bus.publish([message(topic, key=key) for key in MURMUR2]) == [ACCEPTED] * 6

    stored = await KafkaRig(kafka_server).read_messages(topic)
    assert {found.key().decode(): found.partition() for found in stored} == {
        key: (hashed & 0x7FFFFFFF) % 6 for key, hashed in MURMUR2.items()
    }


async def test_a_message_without_a_topic_is_a_mistake_of_the_caller(bus: MessageBus) -> None:
    with pytest.raises(InvalidTopic):
        await bus.publish([message("t")._replace(topic=None)])


@pytest.mark.parametrize("name", ["acks", "enable.idempotence", "message.timeout.ms"])
def test_settings_that_order_rests_on_cannot_be_changed(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        KafkaMessageBus("localhost:9092", settings={name: 1})


async def test_weak_topics_are_named_at_start(kafka_server: LinedKafka, bus: MessageBus) -> None:
    small = message(new_topic())
    await KafkaRig(kafka_server).refuse(small)
    await KafkaRig(kafka_server).set_limit(small.topic or "", 900_000)

    said = await bus.start()

    assert any("copies" in sentence for sentence in said)
    assert any(f"topic {small.topic} takes messages up to 900,000" in s for s in said)


async def test_an_idle_life_has_nothing_under_way(bus: MessageBus) -> None:
    assert isinstance(bus, KafkaMessageBus)
    assert await bus.publish([message(new_topic())]) == [ACCEPTED]

    assert isinstance(bus._life, ProducerLife)
    assert not bus._life.failed
