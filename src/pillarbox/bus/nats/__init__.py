"""NATS JetStream, through nats-py."""

from pillarbox.bus.nats.bus import NatsMessageBus

__all__ = ["NatsMessageBus"]
