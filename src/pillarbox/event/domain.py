"""Domain events: what happened, in the past tense."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class DomainEvent:
    """Derive events from this class; each becomes a frozen dataclass.

    The decorator may be written or left out:

        class OrderCreated(DomainEvent):
            aggregate_type = "order"
            order_id: str
            total: Decimal

    `event_type` is the name on the wire (the class name unless set), `topic` fixes the topic,
    `aggregate_type` names the kind of aggregate for events that no aggregate raises.
    """

    event_type: ClassVar[str | None] = None
    aggregate_type: ClassVar[str | None] = None
    topic: ClassVar[str | None] = None
    schema_version: ClassVar[int] = 1
    schema_id: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A base's decorator, if it has one, has run by now; this class's own has not.
        for base in cls.__mro__[1:]:
            as_dataclass(base)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Complete a class that was written without the decorator before its first instance."""
        del args, kwargs
        as_dataclass(cls)
        return super().__new__(cls)


def as_dataclass(cls: type) -> None:
    """Make an event class that was written without the decorator a frozen dataclass."""
    is_event = issubclass(cls, DomainEvent) and cls is not DomainEvent
    if is_event and "__dataclass_params__" not in cls.__dict__:
        dataclass(frozen=True)(cls)


def event_type_of(kind: type) -> str:
    """Return the name on the wire of a class of events: what it sets, else the class name."""
    return class_setting(kind, "event_type") or kind.__name__


def class_setting(kind: type, name: str) -> str | None:
    """Return a text that a class of events sets (`topic`, `aggregate_type`, `schema_id`)."""
    value = getattr(kind, name, None)
    return value if isinstance(value, str) else None


def schema_version_of(kind: type) -> int:
    """Return the schema version that a class of events sets, else 1."""
    version = getattr(kind, "schema_version", 1)
    return version if isinstance(version, int) else 1
