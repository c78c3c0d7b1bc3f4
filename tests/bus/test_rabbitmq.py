"""What only RabbitMQ does with messages: their properties, and its ways to say no."""

from collections.abc import AsyncIterator

import pytest

from pillarbox.bus.outcome import ACCEPTED, Refused, Unavailable
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.servers import RabbitMq
from pillarbox.servers.errors import ServerFailed
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_rabbitmq import (
    LARGEST,
    RabbitMqRig,
    accepts,
    control,
    elsewhere_on,
    quick_bus,
)


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


async def test_a_message_over_the_brokers_limit_is_refused_and_no_other_is_blamed(
    rabbitmq_server: RabbitMq, bus: RabbitMQMessageBus
) -> None:
    topic = new_topic()
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


async def test_the_server_of_tests_says_what_it_is_asked_and_why_it_cannot(
    rabbitmq_server: RabbitMq,
) -> None:
    users = rabbitmq_server.control("list_users")
    with pytest.raises(ServerFailed, match="delete_user"):
        rabbitmq_server.control("delete_user", "nobody")

    assert "guest" in users
