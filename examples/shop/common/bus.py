"""The bus of a service, by its URL: Kafka, Pulsar, RabbitMQ, NATS or Redis."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pillarbox
from pillarbox import MessageBus

_NAMES: Final = {
    "amqp": "RabbitMQMessageBus",
    "amqps": "RabbitMQMessageBus",
    "kafka": "KafkaMessageBus",
    "nats": "NatsMessageBus",
    "pulsar": "PulsarMessageBus",
    "redis": "RedisMessageBus",
    "rediss": "RedisMessageBus",
    "tls": "NatsMessageBus",
}


_PARTITIONS: Final = 4


def open_bus() -> str | MessageBus | None:
    """Read `PILLARBOX_BUS_URL`, and two settings for those who need more than it says.

    `PULSAR_ADMIN_URL` is where a Pulsar that is not on localhost:6650 makes topics. With
    `SHOP_PATIENCE_SECONDS` the dead are missed after that time: the demo and the tests kill
    processes, and do not want to wait the fifteen seconds that are sensible elsewhere.
    """
    url = os.environ.get("PILLARBOX_BUS_URL")
    return bus_at(url) if url and url.partition("://")[0] in _NAMES else url


def bus_at(url: str) -> MessageBus:
    """Make the bus of one of the five brokers, as all of the shop uses it."""
    scheme, _, servers = url.partition("://")
    kind = getattr(pillarbox, _NAMES[scheme])
    bus: MessageBus = kind(servers if scheme == "kafka" else url, **bus_options(scheme, os.environ))
    return bus


def bus_options(scheme: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Say in the words of a broker what the environment asks for."""
    options: dict[str, Any] = {}
    if scheme in {"amqp", "amqps", "redis", "rediss"}:
        # Without partitions these two give a key's messages to several members, in no order.
        options["partitions"] = _PARTITIONS
    if scheme == "pulsar" and (admin := environ.get("PULSAR_ADMIN_URL")):
        options["admin_url"] = admin
    if patience := environ.get("SHOP_PATIENCE_SECONDS"):
        limit = timedelta(seconds=float(patience))
        options["publish_timeout"] = 0.8 * limit
        match scheme:
            case "kafka":
                options["settings"] = {"session.timeout.ms": int(float(patience) * 1_000)}
            case "nats" | "tls":
                options["ack_wait"] = limit
            case "redis" | "rediss":
                options["member_timeout"] = limit
    return options
