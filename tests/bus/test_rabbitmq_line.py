"""The line to RabbitMQ: its address, its login, and brokers that take nothing or fall silent."""

import time
from datetime import timedelta

import pytest

from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.errors import BusUnreachable, InvalidConfig
from pillarbox.servers import RabbitMq
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import kinds, message, new_topic
from tests.bus.rig_rabbitmq import RabbitMqRig, accepts, control, quick_bus
from tests.support.faultproxy import SERVER, AfterBytes, Cut, FaultProxy, Freeze, Rule
from tests.support.waiting import until

SHORT = timedelta(seconds=3)
SECRET = "hunter2"


@pytest.mark.parametrize(
    ("limit", "low", "enough"),
    [
        pytest.param("set_vm_memory_high_watermark", "0", "0.4", id="memory"),
        pytest.param("set_disk_free_limit", "9000GB", "50MB", id="disk"),
    ],
)
async def test_a_broker_short_of_memory_or_disk_is_unavailable_until_it_has_some(
    rabbitmq_server: RabbitMq, limit: str, low: str, enough: str
) -> None:
    topic = new_topic()
    bus = quick_bus(rabbitmq_server.url, publish_timeout=SHORT)
    assert await bus.publish([message(topic)]) == [ACCEPTED]
    await control(rabbitmq_server, limit, low)

    try:
        # The broker says that it is blocked when it is given something, and may keep that.
        first = await bus.publish([message(topic)])
        begun = time.monotonic()
        second = await bus.publish([message(topic), message(topic)])
        took = time.monotonic() - begun
    finally:
        await control(rabbitmq_server, limit, enough)
    await accepts(bus, topic)
    await bus.close()

    assert kinds(first) == ["Unknown"]
    assert [type(outcome) for outcome in second] == [Unavailable, Unavailable]
    assert {outcome.code for outcome in second if isinstance(outcome, Unavailable)} == {"blocked"}
    assert took <= SHORT.total_seconds()


async def test_a_connection_that_falls_silent_is_given_up_without_a_message(
    rabbitmq_server: RabbitMq,
) -> None:
    async with FaultProxy(LOOPBACK, rabbitmq_server.port) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=1"
        bus = quick_bus(url, publish_timeout=SHORT)
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
        bus = quick_bus(url, publish_timeout=SHORT)
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
    bus = quick_bus(
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
