"""Pillarbox: reliable event delivery for Python services."""

from pillarbox.app import Pillarbox
from pillarbox.errors import PillarboxError
from pillarbox.event.aggregate import AggregateRoot
from pillarbox.event.context import correlation, tenant, trace
from pillarbox.event.domain import DomainEvent
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.registry import EventRegistry
from pillarbox.outbox import listeners as _listeners
from pillarbox.outbox.new_event import JsonText, NewEvent
from pillarbox.outbox.outbox import Outbox, SqlAlchemyOutbox, SyncSqlAlchemyOutbox
from pillarbox.outbox.record import OutboxRecord
from pillarbox.uow import tenants as _tenants
from pillarbox.uow.hook import collect_events
from pillarbox.uow.outcome import CommitOutcome, CommitUnknown
from pillarbox.uow.tenants import TenantScoped
from pillarbox.uow.unit_of_work import SQLAlchemyUnitOfWork

del _listeners, _tenants

__all__ = [
    "AggregateRoot",
    "CommitOutcome",
    "CommitUnknown",
    "DomainEvent",
    "EventRegistry",
    "JsonText",
    "MessageEnvelope",
    "NewEvent",
    "Outbox",
    "OutboxRecord",
    "Pillarbox",
    "PillarboxError",
    "SQLAlchemyUnitOfWork",
    "SqlAlchemyOutbox",
    "SyncSqlAlchemyOutbox",
    "TenantScoped",
    "collect_events",
    "correlation",
    "tenant",
    "trace",
]
