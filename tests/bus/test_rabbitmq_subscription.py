"""What only RabbitMQ does for those who listen: queues, channels, and who consumes what."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import aiormq
import pytest
from aiormq.abc import AbstractChannel
from pamqp import commands
from pamqp.common import FieldTable

from pillarbox.bus.handover import Handover
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.rabbitmq.frames import WireMessage, wire_message
from pillarbox.bus.rabbitmq.subscription_channel import acknowledgements
from pillarbox.bus.subscription import UNORDERED, SubscriptionRequest
from pillarbox.errors import BusUnreachable, InvalidConfig
from pillarbox.servers import RabbitMq
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import SubscriptionContract, SubscriptionRig, message, new_topic
from pillarbox.testing.subscription.case import Member, numbers
from tests.bus.rig_rabbitmq import control, elsewhere_on
from tests.bus.subscription_rig_rabbitmq import (
    EXCHANGE,
    PARTITIONS,
    RabbitMqSubscriptionRig,
    SharedRabbitMqSubscriptionRig,
)
from tests.support.faultproxy import SERVER, Cut, FaultProxy, Freeze, Rule, Seen
from tests.support.waiting import until

QUORUM = {"x-queue-type": "quorum"}
DEAD = {"x-dead-letter-exchange": f"{EXCHANGE}.dead"}
COMING_BACK = 30
SHORT = timedelta(seconds=3)
CONSUME = b"\x00\x3c\x00\x14"  # the class and the method of basic.consume
MOMENT = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def channel(rabbitmq_server: RabbitMq) -> AsyncIterator[AbstractChannel]:
    async with aiormq.connect(rabbitmq_server.url) as client:
        yield await client.channel()


@pytest.fixture
def request_() -> SubscriptionRequest:
    return SubscriptionRequest(f"c{uuid4().hex}", (new_topic(),))


class TestSharedQueues(SubscriptionContract):
    """Queues without partitions, from which all members take."""

    @pytest.fixture
    def rig(self, rabbitmq_server: RabbitMq) -> SubscriptionRig:
        return SharedRabbitMqSubscriptionRig(rabbitmq_server)


async def ignore(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""


@pytest.mark.parametrize(
    ("waiting", "done", "expected"),
    [
        ([1, 2, 3], {1, 2, 3}, (3, [])),
        ([1, 2, 3], {1, 3}, (1, [3])),
        ([4, 5, 9], {9, 4}, (4, [9])),
        ([1, 2, 3], {2, 3}, (None, [2, 3])),
        ([1, 2, 3], set(), (None, [])),
    ],
)
def test_finished_messages_are_told_with_few_words(
    waiting: list[int], done: set[int], expected: tuple[int | None, list[int]]
) -> None:
    assert acknowledgements(waiting, done) == expected


async def test_a_queue_without_a_dead_letter_exchange_is_refused(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, channel: AbstractChannel
) -> None:
    queue = f"{request_.consumer}.{request_.topics[0]}"
    await channel.queue_declare(queue, durable=True, arguments={**QUORUM})
    refused = RabbitMQMessageBus(rabbitmq_server.url).subscribe(request_)
    trusted = RabbitMQMessageBus(rabbitmq_server.url, dead_letter_policy=True).subscribe(request_)

    with pytest.raises(InvalidConfig, match=f"{queue} names no dead-letter exchange.*policy"):
        await refused.start(ignore)
    await refused.close()
    await trusted.start(ignore)
    await trusted.close()


@pytest.mark.parametrize(
    ("arguments", "longest"),
    [({}, None), ({"x-message-ttl": 3_600_000}, timedelta(hours=1))],
    ids=["for ever", "an hour"],
)
async def test_the_longest_redelivery_is_as_long_as_the_queue_keeps_messages(
    rabbitmq_server: RabbitMq,
    request_: SubscriptionRequest,
    channel: AbstractChannel,
    arguments: dict[str, int],
    longest: timedelta | None,
) -> None:
    queue = f"{request_.consumer}.{request_.topics[0]}"
    await channel.queue_declare(queue, durable=True, arguments={**QUORUM, **DEAD, **arguments})
    subscription = RabbitMQMessageBus(rabbitmq_server.url).subscribe(request_)

    said = await subscription.start(ignore)
    await subscription.close()

    dropping = [sentence for sentence in said if "drops events that nobody has taken" in sentence]
    assert [sentence.split()[:2] for sentence in dropping] == [["queue", queue]] * len(arguments)
    assert subscription.reception.longest_redelivery == longest


async def test_missing_queues_on_another_machine_are_named_and_not_made(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, channel: AbstractChannel
) -> None:
    subscription = elsewhere_on(rabbitmq_server).subscribe(request_)
    queue = f"{request_.consumer}.{request_.topics[0]}"

    with pytest.raises(InvalidConfig, match=f"{queue}.*x-queue-type=quorum"):
        await subscription.start(ignore)
    await subscription.close()

    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await channel.queue_declare(queue, passive=True)


async def test_what_is_given_back_more_often_than_the_delivery_limit_is_not_rejected(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, channel: AbstractChannel
) -> None:
    queue = f"{request_.consumer}.{request_.topics[0]}"
    limited: FieldTable = {**QUORUM, **DEAD, "x-delivery-limit": 2}
    rig = SharedRabbitMqSubscriptionRig(rabbitmq_server)
    await channel.queue_declare(queue, durable=True, arguments=limited)
    member = Member(rig.subscription(request_))
    said = await member.start()
    await rig.publish([message(request_.topics[0], 1)])

    for _ in range(5):
        await member.subscription.give_back(await member.take(1))
    [delivery] = await member.take(1)
    await member.subscription.close()

    assert any("x-delivery-limit" in sentence for sentence in said)
    assert "x-delivery-count" not in delivery.message.headers


async def test_a_deleted_queue_is_consumed_again_when_it_is_there_again(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, channel: AbstractChannel
) -> None:
    rig, [topic] = SharedRabbitMqSubscriptionRig(rabbitmq_server), request_.topics
    member = Member(rig.subscription(request_))
    await member.start()
    queue = f"{request_.consumer}.{topic}"

    await channel.queue_delete(queue)

    async def noticed() -> bool:
        return member.let_go == [queue]

    await until(noticed, "the member knows that its consumer was cancelled", COMING_BACK)
    await rig.prepare(request_)
    await rig.publish([message(topic, 3)])
    taken = await member.take(1)
    await member.subscription.close()

    assert numbers(taken) == [3]


async def test_a_queue_that_is_gone_keeps_nobody_from_the_others(
    rabbitmq_server: RabbitMq, channel: AbstractChannel
) -> None:
    rig = SharedRabbitMqSubscriptionRig(rabbitmq_server)
    request = SubscriptionRequest(f"c{uuid4().hex}", (new_topic(), new_topic()))
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        member = Member(rig.bus(address=f"{proxy.host}:{proxy.port}").subscribe(request))
        await member.start()
        await channel.queue_delete(f"{request.consumer}.{request.topics[0]}")

        proxy.now(Cut())
        await rig.publish([message(request.topics[1], 5)])
        taken = await member.take(1)
        await member.subscription.close()

    assert numbers(taken) == [5]


async def test_a_broker_that_falls_silent_while_it_is_asked_is_asked_over_another_connection(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest
) -> None:
    rig = RabbitMqSubscriptionRig(rabbitmq_server)
    await rig.prepare(request_)
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        # Heartbeats would notice it too, but not before minutes.
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=60"
        bus = RabbitMQMessageBus(url, partitions=PARTITIONS, publish_timeout=SHORT)
        member = Member(bus.subscribe(request_))
        await member.start()

        proxy.plan(Rule(SERVER, Seen(CONSUME), Freeze()))
        proxy.now(Cut())
        await proxy.fired()
        await rig.publish([message(request_.topics[0], 5)])
        taken = await member.take(1)
        await member.subscription.close()

    assert numbers(taken) == [5]


async def test_a_start_without_an_answer_ends_within_the_limit(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest
) -> None:
    rig = RabbitMqSubscriptionRig(rabbitmq_server)
    await rig.prepare(request_)
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        proxy.plan(Rule(SERVER, Seen(CONSUME), Freeze()))
        bus = rig.bus(address=f"{proxy.host}:{proxy.port}", limit=SHORT)
        subscription = bus.subscribe(request_)

        async with asyncio.timeout(COMING_BACK):
            with pytest.raises(BusUnreachable):
                await subscription.start(ignore)
            await subscription.close()


async def test_headers_of_every_type_arrive_as_text(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, channel: AbstractChannel
) -> None:
    member = Member(SharedRabbitMqSubscriptionRig(rabbitmq_server).subscription(request_))
    await member.start()

    await channel.basic_publish(
        b"1",
        exchange=EXCHANGE,
        routing_key=request_.topics[0],
        properties=commands.Basic.Properties(
            headers={"n": 7, "yes": True, "list": [1, "a"], "none": None},
            message_id="mine",
            content_type="text/plain",
        ),
    )
    [delivery] = await member.take(1)
    await member.subscription.close()

    found = delivery.message
    assert {name: found.headers[name] for name in ("n", "yes", "none")} == {
        "n": "7",
        "yes": "True",
        "none": "None",
    }
    assert (found.message_id, found.content_type, found.body) == ("mine", "text/plain", b"1")


def _seconds(moment: datetime) -> bytes:
    return int(moment.timestamp()).to_bytes(8, "big")


async def publish_undecodable(bus: RabbitMQMessageBus, topic: str, old: bytes, new: bytes) -> None:
    """Publish a message in whose properties something is replaced that the client would not send."""
    sent = message(topic, 1, source="poison", occurred_at=MOMENT)
    wire = wire_message(sent, topic, "binary")
    assert isinstance(wire, WireMessage)
    assert wire.properties.count(old) >= 1
    spoilt = wire._replace(properties=wire.properties.replace(old, new))
    _, channel = await bus._standing()
    handover = Handover(1, asyncio.get_running_loop().time() + 5)
    await channel.hand_over([spoilt], handover)
    await handover.done
    assert [*handover.outcomes()] == [ACCEPTED]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"\x06poison", b"\x06p\xff\xfeson", id="a property that is no text"),
        pytest.param(b"\x08event_id", b"\x08event_\xff\xfe", id="a header's name that is no text"),
        pytest.param(_seconds(MOMENT), b"\x7f" * 8, id="a date that no calendar has"),
    ],
)
async def test_a_message_that_the_client_cannot_decode_comes_without_properties(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, old: bytes, new: bytes
) -> None:
    rig, [topic] = SharedRabbitMqSubscriptionRig(rabbitmq_server), request_.topics
    bus = rig.bus()
    member = Member(rig.subscription(request_))
    await member.start()
    await rig.publish([message(topic, 0)])

    await publish_undecodable(bus, topic, old, new)
    await rig.publish([message(topic, 2)])
    taken = await member.take_until(lambda seen: {0, 1, 2} <= {*numbers(seen)})
    await member.subscription.close()
    await bus.close()

    [odd] = [delivery for delivery in taken if numbers([delivery]) == [1]]
    assert (odd.message.headers, odd.message.message_id) == ({}, None)


async def test_the_right_to_read_is_enough_where_the_queues_are(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest
) -> None:
    rig, user = RabbitMqSubscriptionRig(rabbitmq_server), f"u{uuid4().hex}"
    await rig.prepare(request_)
    await control(rabbitmq_server, "add_user", user, "secret")
    await control(
        rabbitmq_server, "set_permissions", user, "^$", "^$", rf"^{request_.consumer}\..*"
    )
    url = f"amqp://{user}:secret@{LOOPBACK}:{rabbitmq_server.port}/"
    member = Member(RabbitMQMessageBus(url, partitions=PARTITIONS).subscribe(request_))

    await member.start()
    await rig.publish([message(request_.topics[0], n, key=f"k{n}") for n in range(8)])
    taken = await member.take(8)
    await member.subscription.close()
    await control(rabbitmq_server, "delete_user", user)

    assert sorted(numbers(taken)) == list(range(8))


def test_names_that_make_no_queue_are_refused() -> None:
    bus = RabbitMQMessageBus("amqp://localhost")

    with pytest.raises(InvalidConfig, match="255 bytes"):
        bus.subscribe(SubscriptionRequest("c" * 200, ("t" * 100,)))


@pytest.mark.parametrize(("partitions", "told"), [(None, True), (4, False)])
async def test_queues_that_members_share_are_said_to_have_no_order(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest, partitions: int | None, told: bool
) -> None:
    subscription = RabbitMQMessageBus(rabbitmq_server.url, partitions=partitions).subscribe(
        request_
    )

    said = await subscription.start(ignore)
    await subscription.close()

    assert (UNORDERED in said) == told
