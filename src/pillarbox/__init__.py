"""Pillarbox: reliable event delivery for Python services."""

import importlib
from typing import TYPE_CHECKING, Any, Final

from pillarbox.app import Pillarbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.context import Context, SyncContext
from pillarbox.consumer.signals import Drop, Park, Retry
from pillarbox.errors import PillarboxError
from pillarbox.event.aggregate import AggregateRoot
from pillarbox.event.context import correlation, tenant, trace
from pillarbox.event.domain import DomainEvent
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.registry import EventRegistry
from pillarbox.inbox.identity import content_id
from pillarbox.inbox.inbox import Inbox, SqlAlchemyInbox, SyncSqlAlchemyInbox
from pillarbox.inbox.message import InboxMessage
from pillarbox.inbox.record import InboxRecord
from pillarbox.outbox import listeners as _listeners
from pillarbox.outbox.new_event import JsonText, NewEvent
from pillarbox.outbox.outbox import Outbox, SqlAlchemyOutbox, SyncSqlAlchemyOutbox
from pillarbox.outbox.record import OutboxRecord
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from pillarbox.readmodel.changes import Change, Delete, Increment, Update, Upsert
from pillarbox.readmodel.config import ReadModelConfig
from pillarbox.readmodel.definition import ModelSession, ReadModel, on
from pillarbox.readmodel.progress_bar import ProgressBar
from pillarbox.readmodel.query import QueryHandler, ReadDAO, wait_until_reached
from pillarbox.saga.definition import Saga, Why, step
from pillarbox.uow import tenants as _tenants
from pillarbox.uow.hook import collect_events
from pillarbox.uow.outcome import CommitOutcome, CommitUnknown
from pillarbox.uow.tenants import TenantScoped
from pillarbox.uow.unit_of_work import SQLAlchemyUnitOfWork

if TYPE_CHECKING:
    from pillarbox.bus.kafka import KafkaMessageBus
    from pillarbox.bus.nats import NatsMessageBus
    from pillarbox.bus.pulsar import PulsarMessageBus
    from pillarbox.bus.rabbitmq import RabbitMQMessageBus
    from pillarbox.bus.redis import RedisMessageBus

del _listeners, _tenants

# Their clients are extras: imported when they are asked for.
_BUSES: Final = {
    "KafkaMessageBus": "pillarbox.bus.kafka",
    "NatsMessageBus": "pillarbox.bus.nats",
    "PulsarMessageBus": "pillarbox.bus.pulsar",
    "RabbitMQMessageBus": "pillarbox.bus.rabbitmq",
    "RedisMessageBus": "pillarbox.bus.redis",
}


def __getattr__(name: str) -> Any:
    """Import a bus with its client."""
    if name not in _BUSES:
        raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
    return getattr(importlib.import_module(_BUSES[name]), name)


__all__ = [
    "AggregateRoot",
    "Change",
    "CommitOutcome",
    "CommitUnknown",
    "Consumer",
    "ConsumerConfig",
    "Context",
    "Delete",
    "DomainEvent",
    "Drop",
    "EventRegistry",
    "Inbox",
    "InboxMessage",
    "InboxRecord",
    "Increment",
    "JsonText",
    "KafkaMessageBus",
    "MemoryMessageBus",
    "MessageBus",
    "MessageEnvelope",
    "ModelSession",
    "NatsMessageBus",
    "NewEvent",
    "Outbox",
    "OutboxProjector",
    "OutboxProjectorConfig",
    "OutboxRecord",
    "Park",
    "Pillarbox",
    "PillarboxError",
    "ProgressBar",
    "PulsarMessageBus",
    "QueryHandler",
    "RabbitMQMessageBus",
    "ReadDAO",
    "ReadModel",
    "ReadModelConfig",
    "RedisMessageBus",
    "Retry",
    "SQLAlchemyUnitOfWork",
    "Saga",
    "SqlAlchemyInbox",
    "SqlAlchemyOutbox",
    "SyncContext",
    "SyncSqlAlchemyInbox",
    "SyncSqlAlchemyOutbox",
    "TenantScoped",
    "Update",
    "Upsert",
    "Why",
    "collect_events",
    "content_id",
    "correlation",
    "on",
    "step",
    "tenant",
    "trace",
    "wait_until_reached",
]
