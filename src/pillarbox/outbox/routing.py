"""Routing: which topic an event goes to, decided once, at capture, and stored in the row."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Origin:
    """What a routing policy may look at."""

    service: str
    tenant_id: str
    aggregate_type: str | None
    event_type: str


class RoutingPolicy(Protocol):
    """Name the topic of an event; pure, the same answer for the same origin."""

    def topic(self, origin: Origin) -> str | None:
        """Return the topic, or None when the origin does not say enough."""
        ...


@dataclass(frozen=True, slots=True)
class ContextTopics:
    """`<context>.<aggregate>` in lower case: the default. The context is the service's name."""

    def topic(self, origin: Origin) -> str | None:
        """Return `orders.order` for an Order of the service `orders`."""
        if origin.aggregate_type is None:
            return None
        return f"{origin.service}.{origin.aggregate_type}".lower()


@dataclass(frozen=True, slots=True)
class TenantTopics:
    """`tenant-<id>`: one topic for each tenant."""

    prefix: str = "tenant-"

    def topic(self, origin: Origin) -> str | None:
        """Return `tenant-acme` for the tenant `acme`."""
        return f"{self.prefix}{origin.tenant_id}"


@dataclass(frozen=True, slots=True)
class AggregateTopics:
    """`<aggregate type>-events` in lower case."""

    suffix: str = "-events"

    def topic(self, origin: Origin) -> str | None:
        """Return `order-events` for an Order."""
        kind = origin.aggregate_type
        return None if kind is None else f"{kind.lower()}{self.suffix}"
