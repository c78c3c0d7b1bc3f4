"""What only RabbitMQ does: its exchange, its queues and its ways to say no."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import aiormq
import pytest
from aiormq.abc import AbstractChannel

from pillarbox.bus.outcome import ACCEPTED, Refused, Unavailable
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.errors import BusUnreachable, InvalidConfig
from pillarbox.servers import RabbitMq
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_rabbitmq import LARGEST, RabbitMqRig, control, limit_size
from tests.support.faultproxy import SERVER, AfterBytes, Cut, FaultProxy, Freeze, Rule
from tests.support.waiting import until

SHORT = timedelta(seconds=3)
SECRET = "hunter2"


@pytest.fixture
async def bus(rabbitmq_server: RabbitMq) -> AsyncIterator[RabbitMQMessageBus]:
    made = RabbitMQMessageBus(rabbitmq_server.url)
    yield made
    await made.close()


@pytest.fixture
async def elsewhere(
    rabbitmq_server: RabbitMq, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RabbitMQMessageBus]:
    """A bus that makes nothing by itself, as on another machine."""
    made = RabbitMQMessageBus(rabbitmq_server.url, exchange=f"x{uuid4().hex}")
    monkeypatch.setattr(made, "_makes_queues", False)
    yield made
    await made.close()


@pytest.fixture
async def channel(rabbitmq_server: RabbitMq) -> AsyncIterator[AbstractChannel]:
    async with aiormq.connect(rabbitmq_server.url) as client:
        yield await client.channel()


async def accepts(bus: RabbitMQMessageBus, topic: str) -> None:
    async def accepted() -> bool:
        return [*await bus.publish([message(topic)])] == [ACCEPTED]

    await until(accepted, "messages are accepted again", 30)


async def test_a_message_carries_its_identity_in_the_properties_of_amqp(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus
) -> None:
    topic = new_topic()
    sent = message(topic, headers={"x": "y"})

    assert await bus.publish([sent]) == [ACCEPTED]

    [found] = await RabbitMqRig(rabbitmq_server).deliveries(topic)
    properties = found.header.properties
    assert (properties.message_id, properties.message_type) == (sent.event_id, "OrderPaid")
    assert (properties.content_type, properties.app_id) == ("application/json", "shop")
    assert (properties.timestamp, properties.delivery_mode) == (sent.occurred_at, 2)
    assert properties.headers is not None
    assert properties.headers["cloudEvents_id"] == sent.event_id
    assert properties.headers["x"] == "y"


async def test_a_message_without_a_queue_is_unroutable_and_its_neighbours_pass(
    elsewhere: RabbitMQMessageBus,
) -> None:
    kept, lost = new_topic(), new_topic()
    await elsewhere.apply([kept])

    outcomes = await elsewhere.publish([message(kept), message(lost), message(kept)])

    assert kinds(outcomes) == ["Accepted", "Unavailable", "Accepted"]
    assert isinstance(outcomes[1], Unavailable)
    assert (outcomes[1].code, outcomes[1].topic) == ("unroutable", lost)


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
    during = await bus.publish([message(topic)])
    await accepts(bus, topic)

    assert kinds(during) == ["Unavailable"]


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


async def test_a_message_over_the_brokers_limit_is_refused_and_no_other_is_blamed(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus
) -> None:
    topic = new_topic()
    await limit_size(rabbitmq_server, LARGEST)
    batch = [message(topic, n) for n in range(5)]
    batch[2] = batch[2]._replace(data=b"x" * (LARGEST + 1))

    first = await bus.publish(batch)
    second = await bus.publish(batch)

    assert isinstance(first[2], Refused)
    assert (first[2].code, first[2].certain) == ("message-too-large", True)
    assert set(kinds([*first[:2], *first[3:]])) <= {"Accepted", "Unknown"}
    # Now the limit is known, and the message does not end the channel again.
    assert kinds(second) == ["Accepted", "Accepted", "Refused", "Accepted", "Accepted"]
    assert batch[2].event_id not in ids(await RabbitMqRig(rabbitmq_server).read(topic))


async def test_a_topic_without_the_right_is_unavailable_and_the_others_flow(
    rabbitmq_server: RabbitMq, elsewhere: RabbitMQMessageBus
) -> None:
    open_, closed = new_topic(), new_topic()
    await elsewhere.apply([open_, closed])
    exchange = elsewhere._exchange
    pattern = f"^(?!{closed}$)"
    await control(rabbitmq_server, "set_topic_permissions", "guest", exchange, pattern, ".*")

    outcomes = await elsewhere.publish([message(open_), message(closed), message(open_)])
    beside = await elsewhere.publish([message(open_)])
    await control(rabbitmq_server, "clear_topic_permissions", "guest", exchange)
    await accepts(elsewhere, closed)

    assert isinstance(outcomes[1], Unavailable)
    assert (outcomes[1].code, outcomes[1].topic) == ("access-refused", closed)
    assert set(kinds([outcomes[0], outcomes[2]])) <= {"Accepted", "Unknown"}
    assert beside == [ACCEPTED]


async def test_an_exchange_without_the_right_is_unavailable_as_a_whole(
    rabbitmq_server: RabbitMq, elsewhere: RabbitMQMessageBus
) -> None:
    topic = new_topic()
    await elsewhere.apply([topic])
    await control(rabbitmq_server, "set_permissions", "guest", ".*", "^$", ".*")

    try:
        [outcome] = await elsewhere.publish([message(topic)])
    finally:
        await control(rabbitmq_server, "set_permissions", "guest", ".*", ".*", ".*")
    await accepts(elsewhere, topic)

    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.topic) == ("access-refused", None)


async def test_a_broker_short_of_memory_is_unavailable_until_it_has_some(
    rabbitmq_server: RabbitMq,
) -> None:
    topic = new_topic()
    bus = RabbitMQMessageBus(rabbitmq_server.url, publish_timeout=SHORT)
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    await control(rabbitmq_server, "set_vm_memory_high_watermark", "0")

    try:
        # The broker says that it is blocked when it is given something, and may keep that.
        first = await bus.publish([message(topic)])
        begun = time.monotonic()
        second = await bus.publish([message(topic), message(topic)])
        took = time.monotonic() - begun
    finally:
        await control(rabbitmq_server, "set_vm_memory_high_watermark", "0.4")
    await accepts(bus, topic)
    await bus.close()

    assert kinds(first) == ["Unknown"]
    assert [type(outcome) for outcome in second] == [Unavailable, Unavailable]
    assert {outcome.code for outcome in second if isinstance(outcome, Unavailable)} == {"blocked"}
    assert took <= SHORT.total_seconds()


async def test_partitions_take_the_events_of_a_key_in_order(rabbitmq_server: RabbitMq) -> None:
    topic, rig = new_topic(), RabbitMqRig(rabbitmq_server)
    bus = RabbitMQMessageBus(rabbitmq_server.url, partitions=4)
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
    bus = RabbitMQMessageBus(rabbitmq_server.url, partitions=2)
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


async def test_what_amqp_cannot_carry_is_refused(bus: RabbitMQMessageBus) -> None:
    topic = new_topic()
    batch = [
        message(topic, headers={"CC": "elsewhere"}),
        message(topic, routing_key="ü" * 200),
        message(topic, headers={"x": "y" * 200_000}),
        message(topic, content_type="application/" + "x" * 300),
        message(topic, headers={"x": "\ud800"}),
        message("amq.topic"),
        message(topic),
    ]

    outcomes = await bus.publish(batch)

    assert kinds(outcomes) == ["Refused"] * 6 + ["Accepted"]


async def test_a_type_too_long_for_a_property_travels_in_the_headers(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus
) -> None:
    topic, long = new_topic(), "ü" * 200

    assert await bus.publish([message(topic, event_type=long)]) == [ACCEPTED]

    [stored] = await RabbitMqRig(rabbitmq_server).read(topic)
    assert stored.headers["event_type"] == stored.headers["cloudEvents_type"] == long


async def test_the_same_id_twice_and_in_two_tenants_is_stored_each_time(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus
) -> None:
    topic = new_topic()
    one = message(topic)

    outcomes = await bus.publish([one, one._replace(tenant_id="other"), one])

    assert outcomes == [ACCEPTED] * 3
    assert len(await RabbitMqRig(rabbitmq_server).read(topic)) == 3


async def test_a_connection_that_falls_silent_is_given_up_without_a_message(
    rabbitmq_server: RabbitMq,
) -> None:
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=1"
        bus = RabbitMQMessageBus(url, publish_timeout=SHORT)
        await bus.start()
        connection = bus._connection

        proxy.now(Freeze())

        async def ended() -> bool:
            return connection is not None and connection.ended

        await until(ended, "the silence is noticed", 20)
        await bus.close()


async def test_a_connection_cut_in_the_middle_of_a_message_stores_no_part_of_it(
    rabbitmq_server: RabbitMq,
) -> None:
    topic = new_topic()
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        bus = RabbitMQMessageBus(url, publish_timeout=SHORT)
        assert await bus.publish([message(topic)]) == [ACCEPTED]
        proxy.plan(Rule(SERVER, AfterBytes(50_000), Cut()))

        during = await bus.publish([message(topic, n, data=b"x" * 9_000) for n in range(20)])
        await accepts(bus, topic)
        await bus.close()

    bodies = {len(found.body or b"") for found in await RabbitMqRig(rabbitmq_server).read(topic)}
    assert set(kinds(during)) <= {"Accepted", "Unknown"}
    assert kinds(during)[-1] == "Unknown"
    assert bodies <= {len(b'{"n":0}'), 9_000}


async def test_credentials_are_asked_for_at_each_connection(rabbitmq_server: RabbitMq) -> None:
    given = iter([SECRET, "guest"])
    bus = RabbitMQMessageBus(
        f"amqp://{LOOPBACK}:{rabbitmq_server.port}/",
        options={"user": "guest", "password": lambda: next(given)},
    )

    with pytest.raises(BusUnreachable) as refused:
        await bus.start()
    outcomes = await bus.publish([message(new_topic())])
    await bus.close()

    assert "ACCESS_REFUSED" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert outcomes == [ACCEPTED]


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "rabbitmq"])
async def test_an_address_shows_no_password(scheme: str) -> None:
    bus = RabbitMQMessageBus(f"{scheme}://app:{SECRET}@broker.example:5000/shop")

    assert SECRET not in bus._shown
    assert "broker.example" in bus._shown


@pytest.mark.parametrize(
    "url", [f"http://app:{SECRET}@host", f"amqp://app:{SECRET}@host:x/", "amqp://"]
)
async def test_an_address_that_cannot_work_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        RabbitMQMessageBus(url)

    assert SECRET not in str(refused.value)
