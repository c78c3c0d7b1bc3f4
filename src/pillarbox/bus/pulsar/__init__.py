"""Pulsar, through pulsar-client."""

from pillarbox.bus.pulsar.bus import PulsarMessageBus

__all__ = ["PulsarMessageBus"]
