"""Subscriptions of each real broker."""

from collections.abc import Callable
from typing import Any, Final

from pillarbox.testing import SubscriptionRig
from tests.bus.subscription_rig_kafka import KafkaSubscriptionRig
from tests.bus.subscription_rig_nats import NatsSubscriptionRig
from tests.bus.subscription_rig_pulsar import PulsarSubscriptionRig
from tests.bus.subscription_rig_rabbitmq import RabbitMqSubscriptionRig
from tests.bus.subscription_rig_redis import RedisSubscriptionRig

RIGS: Final[dict[str, Callable[[Any], SubscriptionRig]]] = {
    "kafka": KafkaSubscriptionRig,
    "nats": NatsSubscriptionRig,
    "pulsar": PulsarSubscriptionRig,
    "rabbitmq": RabbitMqSubscriptionRig,
    "redis": RedisSubscriptionRig,
}
