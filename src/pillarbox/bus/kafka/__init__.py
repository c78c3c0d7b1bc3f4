"""Kafka, through confluent-kafka."""

from pillarbox.bus.kafka.bus import KafkaMessageBus

__all__ = ["KafkaMessageBus"]
