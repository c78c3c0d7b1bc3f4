"""A registry of event names and of the steps from old schema versions to the current one."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pillarbox.errors import InvalidConfig, InvalidEvent
from pillarbox.event.domain import event_type_of, schema_version_of

Payload = Mapping[str, Any]
Upcaster = Callable[[Payload], Payload]
EventClass = TypeVar("EventClass", bound=type)


class EventRegistry:
    """Map names on the wire to local classes; names only, never import paths.

    registry = EventRegistry()

    @registry.event
    class OrderCreated(DomainEvent):
        schema_version = 2
        order_id: str
        currency: str

    @registry.upcaster("OrderCreated", from_version=1)
    def add_currency(payload: Payload) -> Payload:
        return {**payload, "currency": "EUR"}
    """

    def __init__(self) -> None:
        self._classes: dict[str, type] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def event(self, cls: EventClass) -> EventClass:
        """Register a class under its event type; usable as a decorator."""
        name = event_type_of(cls)
        known = self._classes.setdefault(name, cls)
        if known is not cls:
            raise InvalidConfig(
                f"event type {name!r}",
                f"is registered for {known.__qualname__} already",
                "set event_type on one of the two classes",
            )
        return cls

    def upcaster(self, event_type: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Register the step from one schema version to the next."""

        def register(step: Upcaster) -> Upcaster:
            if (event_type, from_version) in self._upcasters:
                raise InvalidConfig(
                    f"upcaster of {event_type!r} from version {from_version}",
                    "is registered already",
                    "keep one step for each version",
                )
            self._upcasters[event_type, from_version] = step
            return step

        return register

    def event_class(self, event_type: str) -> type | None:
        """Return the class registered under a name, or None."""
        return self._classes.get(event_type)

    def version(self, event_type: str) -> int | None:
        """Return the schema version of the class registered under a name, or None."""
        cls = self._classes.get(event_type)
        return None if cls is None else schema_version_of(cls)

    def last_upcast(self, event_type: str) -> int:
        """Return the version that the registered steps of a type lead to; 1 if it has none."""
        steps = (version for name, version in self._upcasters if name == event_type)
        return max(steps, default=0) + 1

    def upcast(
        self, event_type: str, version: int, payload: Payload, *, to: int | None = None
    ) -> Payload:
        """Bring a payload from its schema version to another, step by step.

        That is the version of the registered class, unless `to` names one.
        """
        current = self.version(event_type) if to is None else to
        if current is None:
            raise InvalidEvent(
                "event_type", f"{event_type!r} is not registered", "register the class by its name"
            )
        if version > current:
            raise InvalidEvent(
                "schema_version",
                f"{version} of {event_type} is newer than {current}, which this code knows",
                "deploy the newer code first",
            )
        for step in range(version, current):
            payload = self._step(event_type, step)(payload)
        return payload

    def _step(self, event_type: str, version: int) -> Upcaster:
        try:
            return self._upcasters[event_type, version]
        except KeyError:
            raise InvalidEvent(
                "schema_version",
                f"{version} of {event_type} has no upcaster to {version + 1}",
                "register one with @registry.upcaster",
            ) from None
