"""The exchange of RabbitMQ and its queues: missing, weak, in partitions."""

import asyncio
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import aiormq
import pytest
from aiormq.abc import AbstractChannel

from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.rabbitmq.settling import SETTLE_SECONDS
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.servers import RabbitMq
from pillarbox.testing.subscription.case import Member
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_rabbitmq import RabbitMqRig, elsewhere_on, quick_bus
from tests.support.waiting import until


@pytest.fixture
async def bus(rabbitmq_server: RabbitMq) -> AsyncIterator[RabbitMQMessageBus]:
    made = quick_bus(rabbitmq_server.url)
    yield made
    await made.close()


@pytest.fixture
async def elsewhere(rabbitmq_server: RabbitMq) -> AsyncIterator[RabbitMQMessageBus]:
    made = elsewhere_on(rabbitmq_server)
    yield made
    await made.close()


@pytest.fixture
async def channel(rabbitmq_server: RabbitMq) -> AsyncIterator[AbstractChannel]:
    async with aiormq.connect(rabbitmq_server.url) as client:
        yield await client.channel()


async def test_a_message_without_a_queue_is_unroutable_and_its_neighbours_pass(
    elsewhere: RabbitMQMessageBus,
) -> None:
    kept, lost = new_topic(), new_topic()
    await elsewhere.apply([kept])

    outcomes = await elsewhere.publish([message(kept), message(lost), message(kept)])

    assert kinds(outcomes) == ["Accepted", "Unavailable", "Accepted"]
    assert isinstance(outcomes[1], Unavailable)
    assert (outcomes[1].code, outcomes[1].topic) == ("unroutable", lost)


async def test_headers_that_hide_the_id_do_not_hide_that_a_message_is_unroutable(
    elsewhere: RabbitMQMessageBus,
) -> None:
    topic = new_topic()
    await elsewhere.apply([new_topic()])
    odd = message(topic, headers={"event_id": "another", "tenant_id": "other"})

    [outcome] = await elsewhere.publish([odd])

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("unroutable", topic)


async def test_a_thousand_unroutable_messages_are_each_answered_for(
    elsewhere: RabbitMQMessageBus,
) -> None:
    await elsewhere.apply([new_topic()])
    lost = new_topic()

    outcomes = await elsewhere.publish([message(lost, n) for n in range(1_000)])

    assert {outcome.code for outcome in outcomes if isinstance(outcome, Unavailable)} == {
        "unroutable"
    }
    assert kinds(outcomes) == ["Unavailable"] * 1_000


async def test_a_queue_that_was_deleted_on_this_machine_is_made_again(
    bus: RabbitMQMessageBus, channel: AbstractChannel
) -> None:
    topic = new_topic()
    assert await bus.publish([message(topic)]) == [ACCEPTED]

    await channel.queue_delete(topic)

    assert await bus.publish([message(topic)]) == [ACCEPTED]


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_topic_whose_events_a_consumer_takes_gets_no_queue_of_its_own(
    rabbitmq_server: RabbitMq, channel: AbstractChannel, partitions: int | None
) -> None:
    topic, consumer = new_topic(), f"c{uuid4().hex}"
    bus = quick_bus(rabbitmq_server.url, partitions=partitions)

    made = await bus.prepare([SubscriptionRequest(consumer, (topic,))])
    outcomes = await bus.publish([message(topic, n, key=f"key-{n}") for n in range(20)])
    again = await bus.prepare([SubscriptionRequest(consumer, (topic,))])
    await bus.close()

    own = [topic] if partitions is None else [f"{topic}.p0", f"{topic}.p1"]
    assert outcomes == [ACCEPTED] * 20
    assert (made, again) == ([f"{consumer}.{queue}" for queue in own], [])
    found = [await RabbitMqRig(rabbitmq_server).read(queue) for queue in made]
    assert sum(map(len, found)) == 20
    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await channel.queue_declare(own[0], passive=True)


async def test_what_is_published_before_the_first_start_is_kept_for_a_prepared_consumer(
    elsewhere: RabbitMQMessageBus,
) -> None:
    request = SubscriptionRequest(f"c{uuid4().hex}", (new_topic(),))
    sent = message(request.topics[0], 7)

    await elsewhere.prepare([request])
    assert await elsewhere.publish([sent]) == [ACCEPTED]
    member = Member(elsewhere.subscribe(request))
    await member.start()
    [taken] = await member.take(1)
    await member.subscription.close()

    assert taken.message.headers["event_id"] == sent.event_id


async def test_new_queues_settle_together_and_take_nothing_before(
    rabbitmq_server: RabbitMq,
) -> None:
    topics = [new_topic() for _ in range(5)]
    bus = RabbitMQMessageBus(rabbitmq_server.url)
    begun = time.monotonic()

    outcomes = await asyncio.gather(*(bus.publish([message(topic)]) for topic in topics))
    took = time.monotonic() - begun
    again = await bus.publish([message(topic) for topic in topics])
    took_again = time.monotonic() - begun - took
    await bus.close()

    assert outcomes == [[ACCEPTED]] * 5
    assert again == [ACCEPTED] * 5
    assert SETTLE_SECONDS <= took < 4 * SETTLE_SECONDS
    assert took_again < SETTLE_SECONDS


async def test_a_missing_exchange_on_another_machine_is_unavailable(
    elsewhere: RabbitMQMessageBus,
) -> None:
    topic = new_topic()

    [outcome] = await elsewhere.publish([message(topic)])
    await elsewhere.apply([topic])
    [after] = await elsewhere.publish([message(topic)])

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("no-exchange", None)
    assert after == ACCEPTED


async def test_an_exchange_that_vanishes_costs_a_channel_and_not_the_connection(
    elsewhere: RabbitMQMessageBus, channel: AbstractChannel
) -> None:
    topic = new_topic()
    await elsewhere.apply([topic])
    assert await elsewhere.publish([message(topic)]) == [ACCEPTED]
    connection = elsewhere._connection

    await channel.exchange_delete(elsewhere._exchange)
    during = [
        *await elsewhere.publish([message(topic)]),
        *await elsewhere.publish([message(topic)]),
    ]
    await elsewhere.apply([topic])
    after = await elsewhere.publish([message(topic)])

    assert {outcome.code for outcome in during if isinstance(outcome, Unavailable)} == {
        "no-exchange"
    }
    assert kinds(during) == ["Unavailable"] * 2
    assert after == [ACCEPTED]
    assert elsewhere._connection is connection


async def test_partitions_take_the_events_of_a_key_in_order(rabbitmq_server: RabbitMq) -> None:
    topic, rig = new_topic(), RabbitMqRig(rabbitmq_server)
    bus = quick_bus(rabbitmq_server.url, partitions=4)
    batch = [message(topic, n, key=f"order-{n % 20}") for n in range(200)]

    made = await bus.apply([topic])
    outcomes = await bus.publish(batch)
    await bus.close()

    stored = [await rig.read(f"{topic}.p{place}") for place in range(4)]
    assert made == [f"{topic}.p{place}" for place in range(4)]
    assert outcomes == [ACCEPTED] * 200
    assert all(stored)
    for key in {sent.key for sent in batch}:
        places = [
            ids([found for found in part if found.headers["cloudEvents_partitionkey"] == key])
            for part in stored
        ]
        assert [place for place in places if place] == [ids([s for s in batch if s.key == key])]


async def test_a_routing_key_of_its_own_goes_where_it_is_bound(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus, channel: AbstractChannel
) -> None:
    topic, queue, word = new_topic(), f"vip-{uuid4().hex}", uuid4().hex
    await bus.apply([topic])
    await channel.queue_declare(queue, durable=True)
    await channel.queue_bind(queue, "events", f"{word}.*")
    sent = message(topic, routing_key=f"{word}.eu")

    outcomes = await bus.publish([sent, message(topic, routing_key=uuid4().hex)])

    assert outcomes[0] == ACCEPTED
    assert isinstance(outcomes[1], Unavailable)
    assert outcomes[1].topic == topic
    assert ids(await RabbitMqRig(rabbitmq_server).read(queue)) == [sent.event_id]


async def test_what_a_consumer_rejects_goes_to_the_dead_letter_queue(
    rabbitmq_server: RabbitMq, elsewhere: RabbitMQMessageBus, channel: AbstractChannel
) -> None:
    topic, dead = new_topic(), f"{elsewhere._exchange}.dead"
    await elsewhere.apply([topic])
    sent = message(topic)
    assert await elsewhere.publish([sent]) == [ACCEPTED]

    taken = await channel.basic_get(topic)
    await channel.basic_reject(taken.delivery_tag or 0, requeue=False)

    async def arrived() -> bool:
        return ids(await RabbitMqRig(rabbitmq_server).read(dead)) == [sent.event_id]

    await until(arrived, "the message is in the dead-letter queue")


async def test_a_start_says_what_is_weak_and_what_cannot_be_seen(
    elsewhere: RabbitMQMessageBus, channel: AbstractChannel
) -> None:
    topic = new_topic()
    before = await elsewhere.start()
    await channel.exchange_declare(elsewhere._exchange, exchange_type="topic", durable=False)
    await channel.queue_declare(topic, durable=True)
    await elsewhere.apply([topic])

    said = " / ".join(await elsewhere.start())

    assert any("there is no exchange" in sentence for sentence in before)
    assert f"exchange {elsewhere._exchange} is not durable" in said
    assert f"queue {topic} is no quorum queue" in said
    assert f"queue {topic} names no dead-letter exchange" in said
    assert "AMQP does not show" in said
    assert "is not encrypted" in said


async def test_what_was_applied_is_not_weak(bus: RabbitMQMessageBus) -> None:
    await bus.apply([new_topic()])

    [said] = await bus.start()

    assert said.startswith("AMQP does not show")


async def test_a_partition_with_several_consumers_is_weak(
    rabbitmq_server: RabbitMq, channel: AbstractChannel
) -> None:
    topic = new_topic()
    bus = quick_bus(rabbitmq_server.url, partitions=2)
    await channel.queue_declare(
        f"{topic}.p1",
        durable=True,
        arguments={"x-queue-type": "quorum", "x-dead-letter-exchange": "another"},
    )
    await bus.apply([topic])

    said = await bus.start()
    await bus.close()

    assert len(said) == 2
    assert said[0].startswith(f"queue {topic}.p1 may have several consumers at a time")
