"""The two ways in which the shop works: which module of a service holds its consumers."""

from collections.abc import Mapping
from typing import Final

CHOREOGRAPHY: Final = "choreography"
SAGA: Final = "saga"

CONSUMERS: Final[Mapping[str, Mapping[str, str]]] = {
    CHOREOGRAPHY: {
        "orders": "examples.shop.order_service.app.consumer",
        "inventory": "examples.shop.inventory_service.app.consumer",
        "payments": "examples.shop.payment_service.app.consumer",
        "notifications": "examples.shop.notification_service.app.consumer",
    },
    SAGA: {
        "orders": "examples.shop.order_service.app.saga",
        "inventory": "examples.shop.inventory_service.app.participant",
        "payments": "examples.shop.payment_service.app.participant",
        "notifications": "examples.shop.notification_service.app.consumer",
    },
}
TOPICS: Final[Mapping[str, tuple[str, ...]]] = {
    CHOREOGRAPHY: ("orders.order", "inventory.reservation", "payments.payment"),
    SAGA: (
        "orders.order",
        "inventory.commands",
        "inventory.reservation",
        "payments.commands",
        "payments.payment",
    ),
}
