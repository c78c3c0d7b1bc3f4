"""What stays on this machine, and the warning about plain text that does not."""

from collections.abc import Mapping

import pytest

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.kafka.settings import exposure
from pillarbox.bus.loopback import all_loopback, host_of, plaintext_weakness
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.servers import Kafka, Nats

ENCRYPTED = "not encrypted"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("localhost:9092", "localhost"),
        ("user:secret@broker.example:4222", "broker.example"),
        ("[::1]:9092", "::1"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_the_host_of_an_address_is_found(address: str, host: str) -> None:
    assert host_of(address) == host


@pytest.mark.parametrize(
    ("hosts", "here"),
    [
        (["localhost", "127.0.0.1", "127.8.8.8", "::1"], True),
        (["localhost", "broker.example"], False),
        (["localhost.example"], False),
        (["0.0.0.0"], False),  # noqa: S104 - a name to judge, nothing listens there
        (["10.0.0.7"], False),
    ],
)
def test_all_hosts_must_be_this_machine(hosts: list[str], here: bool) -> None:
    assert all_loopback(hosts) is here


def test_plain_text_is_told_of_when_it_leaves_this_machine() -> None:
    [said] = plaintext_weakness("nats://broker.example", "use tls://", here=False)

    assert said == "nats://broker.example is not encrypted: use tls://"
    assert plaintext_weakness("nats://localhost", "use tls://", here=True) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"security.protocol": "PLAINTEXT"}, True),
        ({"security.protocol": "sasl_plaintext"}, True),
        ({"security.protocol": "ssl"}, False),
        ({"security.protocol": "SASL_SSL"}, False),
    ],
)
def test_kafkas_protocol_decides(settings: Mapping[str, str], told: bool) -> None:
    assert any(ENCRYPTED in said for said in exposure(settings, here=False)) is told
    assert exposure(settings, here=True) == []


async def test_kafka_says_at_its_start_that_plain_text_leaves_this_machine(
    kafka_server: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = KafkaMessageBus(kafka_server.bootstrap)
    here = await bus.start()
    monkeypatch.setattr(bus, "_makes_topics", False)
    elsewhere = await bus.start()
    await bus.close()

    assert not any(ENCRYPTED in said for said in here)
    assert any(ENCRYPTED in said for said in elsewhere)


async def test_nats_says_at_its_start_that_plain_text_leaves_this_machine(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = NatsMessageBus(nats_server.url)
    here = await bus.start()
    monkeypatch.setattr(bus, "_makes_streams", False)
    elsewhere = await bus.start()
    await bus.close()

    assert not any(ENCRYPTED in said for said in here)
    assert any(ENCRYPTED in said for said in elsewhere)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("amqp://broker.example", True),
        ("amqps://broker.example", False),
        ("amqp://localhost", False),
    ],
)
def test_rabbitmqs_scheme_and_host_decide(url: str, told: bool) -> None:
    said = RabbitMQMessageBus(url)._exposure()

    assert any(ENCRYPTED in sentence for sentence in said) is told
