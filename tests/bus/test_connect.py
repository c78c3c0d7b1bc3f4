import subprocess
import sys
from typing import Any

import pytest

from pillarbox.bus.connect import bus_from_url
from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.errors import InvalidConfig

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("kafka://127.0.0.1:9092", KafkaMessageBus),
        ("kafka://a.example:9092,b.example:9092", KafkaMessageBus),
        (f"nats://app:{SECRET}@127.0.0.1:4222", NatsMessageBus),
        (f"amqp://app:{SECRET}@127.0.0.1:5672/", RabbitMQMessageBus),
        ("pulsar://127.0.0.1:6650", PulsarMessageBus),
        (f"redis://app:{SECRET}@127.0.0.1:6379/0", RedisMessageBus),
        ("memory://", MemoryMessageBus),
    ],
)
async def test_the_scheme_of_a_url_chooses_the_bus(url: str, kind: type) -> None:
    bus = bus_from_url(url)

    assert isinstance(bus, kind)
    assert SECRET not in repr(bus)


@pytest.mark.parametrize(
    "url",
    [
        f"kafka://app:{SECRET}@host:9092",
        f"smoke://app:{SECRET}@host",
        "kafka://",
        SECRET,
    ],
)
async def test_a_url_that_cannot_work_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        bus_from_url(url)

    assert SECRET not in str(refused.value)


async def test_an_error_names_the_server_without_its_password() -> None:
    bus = NatsMessageBus(f"nats://app:{SECRET}@127.0.0.1:1")

    assert SECRET not in bus._shown
    assert "127.0.0.1" in bus._shown


async def test_a_missing_client_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name="confluent_kafka")

    monkeypatch.setattr("importlib.import_module", missing)

    with pytest.raises(InvalidConfig, match=r"pip install 'pillarbox\[kafka\]'"):
        bus_from_url("kafka://localhost:9092")


def test_no_client_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, pillarbox, pillarbox.bus.connect; "
        "print([m for m in ('confluent_kafka', 'nats') if m in sys.modules])"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert printed.stdout.strip() == "[]"
