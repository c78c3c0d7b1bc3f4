"""The bus of a service, by its URL: Kafka, Pulsar, RabbitMQ, NATS or Redis."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pillarbox
from pillarbox import MessageBus

_NAMES: Final = {
    "amqp": "RabbitMQMessageBus",
    "kafka": "KafkaMessageBus",
    "nats": "NatsMessageBus",
    "pulsar": "PulsarMessageBus",
    "redis": "RedisMessageBus",
}


def open_bus() -> str | MessageBus | None:
    """Read `PILLARBOX_BUS_URL`, and two settings for those who need more than it says.

    `PULSAR_ADMIN_URL` is where a Pulsar that is not on localhost:6650 makes topics. With
    `SHOP_PATIENCE_SECONDS` the dead are missed after that time: the demo and the tests kill
    processes, and do not want to wait the fifteen seconds that are sensible elsewhere.
    """
    url = os.environ.get("PILLARBOX_BUS_URL")
    scheme, _, servers = (url or "").partition("://")
    options = bus_options(scheme, os.environ)
    if scheme not in _NAMES or not options:
        return url
    kind = getattr(pillarbox, _NAMES[scheme])
    bus: MessageBus = kind(servers if scheme == "kafka" else url, **options)
    return bus


def bus_options(scheme: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Say in the words of a broker what the environment asks for."""
    options: dict[str, Any] = {}
    if scheme == "pulsar" and (admin := environ.get("PULSAR_ADMIN_URL")):
        options["admin_url"] = admin
    if patience := environ.get("SHOP_PATIENCE_SECONDS"):
        limit = timedelta(seconds=float(patience))
        options["publish_timeout"] = 0.8 * limit
        match scheme:
            case "kafka":
                options["settings"] = {"session.timeout.ms": int(float(patience) * 1_000)}
            case "nats":
                options["ack_wait"] = limit
            case "redis":
                options["member_timeout"] = limit
    return options
