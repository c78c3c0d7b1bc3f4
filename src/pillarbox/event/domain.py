"""Domain events: what happened, in the past tense."""

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, dataclass_transform

from pillarbox.errors import InvalidConfig

SETTINGS: Final = ("event_type", "aggregate_type", "topic", "schema_version", "schema_id")


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
        _refuse_reserved_fields(cls)
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
    if not issubclass(cls, DomainEvent) or cls is DomainEvent:
        return
    if "__dataclass_params__" not in cls.__dict__:
        dataclass(frozen=True)(cls)


def _refuse_reserved_fields(cls: type) -> None:
    """Refuse a field that is named like a setting of the class and would hide it."""
    for name, annotation in inspect.get_annotations(cls).items():
        if name in SETTINGS and "ClassVar" not in str(annotation):
            raise InvalidConfig(
                f"{cls.__name__}.{name}",
                "is a field with the name of a setting of the class",
                f'rename the field, or set it without annotation: {name} = "…"',
            )


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
