"""Start events and replies as the classes that a definition names."""

from functools import cache
from typing import Any

from pillarbox.consumer.conversion import Convert
from pillarbox.consumer.models import converter
from pillarbox.consumer.routes import declared_version, upcast
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.registry import EventRegistry


def read_event(registry: EventRegistry, kind: type, envelope: MessageEnvelope) -> Any:
    """Return an event as an object of its class, from whatever schema version it has.

    Raise `Misfit` when the payload is not what the class needs.
    """
    payload = upcast(registry, envelope, declared_version(kind))
    return _converter(kind)(payload)


@cache
def _converter(kind: type) -> Convert:
    return converter(kind)
