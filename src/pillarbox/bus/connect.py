"""Make the bus that a URL names."""

import importlib
from collections.abc import Callable
from typing import Any, Final

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.errors import InvalidConfig
from pillarbox.event.rules import rules_for

_CLIENTS: Final = {
    "kafka": "confluent_kafka",
    "nats": "nats",
    "pulsar": "pulsar",
    "rabbitmq": "aiormq",
    "redis": "redis",
}
_NAMES: Final = {
    "nats": "NatsMessageBus",
    "pulsar": "PulsarMessageBus",
    "rabbitmq": "RabbitMQMessageBus",
    "redis": "RedisMessageBus",
}


def bus_from_url(url: str) -> MessageBus:
    """Return the bus of a URL.

    That is `kafka://host:port[,host:port]`, `nats://…`, `pulsar://…`, `amqp://…`, `redis://…` or
    `memory://`. Clients of brokers are imported here and not before; nothing connects yet. Messages of errors
    never repeat the URL, which may hold a password.
    """
    rules = rules_for(url)
    if rules.name == "memory":
        return MemoryMessageBus()
    if "://" not in url or not url.partition("://")[2]:
        raise InvalidConfig("bus", "names no server", f"write {rules.schemes[0]}://host:port")
    if rules.name == "kafka":
        return _kafka(url)
    return _made(rules.name, _NAMES[rules.name], lambda bus: bus(url))


def _kafka(url: str) -> MessageBus:
    servers = url.partition("://")[2].rstrip("/")
    if "@" in servers or "/" in servers or "?" in servers:
        raise InvalidConfig(
            "bus",
            "holds more than servers",
            "write kafka://host:port, and give users and passwords to "
            "KafkaMessageBus(settings={'sasl.username': …})",
        )
    return _made("kafka", "KafkaMessageBus", lambda bus: bus(servers))


def _made(extra: str, name: str, make: Callable[[Any], MessageBus]) -> MessageBus:
    try:
        module = importlib.import_module(f"pillarbox.bus.{extra}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != _CLIENTS[extra]:
            raise
        raise InvalidConfig(
            "bus", f"needs the client of {extra}", f"pip install 'pillarbox[{extra}]'"
        ) from error
    return make(getattr(module, name))
