"""RabbitMQ, through aiormq."""

from pillarbox.bus.rabbitmq.bus import RabbitMQMessageBus

__all__ = ["RabbitMQMessageBus"]
