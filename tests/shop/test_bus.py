"""The bus of the shop's services: an order's events stay in their order on every broker."""

from typing import cast

import pytest

from examples.shop.common.bus import bus_at
from pillarbox.bus.subscription import SubscribingBus, SubscriptionRequest

URLS = [
    "amqp://localhost:5672",
    "amqps://localhost:5671",
    "kafka://localhost:9092",
    "nats://localhost:4222",
    "pulsar://localhost:6650",
    "redis://localhost:6379",
    "rediss://localhost:6380",
    "tls://localhost:4222",
]


@pytest.mark.parametrize("url", URLS)
async def test_consumers_get_the_messages_of_a_key_in_order(url: str) -> None:
    """On Redis a consumer that died kept an order's first event while the next was taken in."""
    bus = bus_at(url)

    subscription = cast("SubscribingBus", bus).subscribe(
        SubscriptionRequest("notifications", ("orders.order",))
    )

    assert subscription.reception.orders_keys
    await bus.close()
