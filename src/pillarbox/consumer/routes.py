"""Which handler takes which event, and what a message must be to reach it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pillarbox.consumer.context import Context
from pillarbox.consumer.conversion import Convert, Misfit
from pillarbox.consumer.handlers import Handler, HandlerFunction, handler_of
from pillarbox.consumer.models import converter
from pillarbox.errors import InvalidConfig, InvalidEvent
from pillarbox.event.cloudevents import is_json
from pillarbox.event.domain import DomainEvent, schema_version_of
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import (
    DEFAULT_RULES,
    Identify,
    Incoming,
    ReadingRules,
    Unreadable,
)
from pillarbox.event.reading import read
from pillarbox.event.registry import EventRegistry
from pillarbox.event.rules import check_key

Handle = Callable[[Context], Awaitable[None]]
"""Run a handler for one event; raises what the handler raises, and the `Signal` that it returns."""


class Prepared(NamedTuple):
    """A message that can be handled: its envelope, and its handler with the event in it."""

    envelope: MessageEnvelope
    handler: Handle


class Ignored(NamedTuple):
    """A message that nobody here wants: it is acknowledged, and the inbox does not hear of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Route:
    """A handler with its model and the schema version that it understands, if it says one."""

    handler: Handler
    convert: Convert | None
    version: int | None


class Routes:
    """Know the handlers of a consumer, one for each event type.

    A type has one handler, because the inbox remembers one effect for each message: another effect
    belongs to a consumer of another name, which fails, waits and is redriven by itself.
    """

    def __init__(
        self,
        registry: EventRegistry | None = None,
        *,
        identify: Identify | None = None,
        rules: ReadingRules = DEFAULT_RULES,
        ignore_unknown: bool = False,
    ) -> None:
        self._registry = registry or EventRegistry()
        self._identify, self._rules = identify, rules
        self._ignore_unknown = ignore_unknown
        self._routes: dict[str, _Route] = {}
        self._other: _Route | None = None

    @property
    def event_types(self) -> list[str]:
        """The types that have a handler."""
        return sorted(self._routes)

    def add(
        self, event_type: str, function: HandlerFunction, *, schema_version: int | None = None
    ) -> None:
        """Give a type its handler; refuse a second one, and a model that nothing can become."""
        check_key("event_type", event_type)
        if event_type in self._routes:
            raise InvalidConfig(
                f"handler of {event_type!r}",
                "is there already",
                "call both from one handler, or make a consumer of another name for the other",
            )
        self._routes[event_type] = _route(function, schema_version)

    def otherwise(self, function: HandlerFunction) -> None:
        """Have messages handled whose type has no handler of its own."""
        self._other = _route(function, None)

    def prepare(self, message: Incoming) -> Prepared | Unreadable | Ignored:
        """Read a message, convert its event, and find its handler; never raise for bad input."""
        envelope = read(message, self._identify, self._rules)
        return envelope if isinstance(envelope, Unreadable) else self.resolve(envelope)

    def resolve(self, envelope: MessageEnvelope) -> Prepared | Unreadable | Ignored:
        """Convert the event of an envelope and find its handler; never raise for bad input."""
        route = self._routes.get(envelope.event_type, self._other)
        if route is None:
            reason = f"there is no handler for the event type {envelope.event_type!r}"
            return Ignored(reason) if self._ignore_unknown else Unreadable("unknown-type", reason)
        current = self._upcast(envelope, route)
        if isinstance(current, Unreadable):
            return current
        return _prepared(envelope, current, route)

    def _upcast(self, envelope: MessageEnvelope, route: _Route) -> MessageEnvelope | Unreadable:
        """Bring a payload to the schema version that the handler understands."""
        try:
            payload = upcast(self._registry, envelope, route.version)
        except InvalidEvent as error:
            return Unreadable("schema-version", str(error))
        except Exception as error:  # noqa: BLE001 - an upcaster is the user's code, and the loop must not die of it
            return Unreadable(
                "schema-version",
                f"the upcaster of {envelope.event_type} raised {type(error).__name__}",
            )
        same = payload is envelope.payload
        return envelope if same else envelope._replace(payload=payload)


def _route(function: HandlerFunction, schema_version: int | None) -> _Route:
    handler = handler_of(function)
    own = handler.model in (Any, MessageEnvelope, bytes)
    convert = None if own else converter(handler.model)
    return _Route(handler, convert, schema_version or declared_version(handler.model))


def upcast(registry: EventRegistry, envelope: MessageEnvelope, declared: int | None) -> Any:
    """Return the payload of an event as the schema version has it that a model declares."""
    kind, version = envelope.event_type, envelope.schema_version
    wanted = declared or registry.version(kind)
    if wanted is None:
        # A model that names no version takes what it can read, after all steps there are.
        wanted = max(version, registry.last_upcast(kind))
    if wanted == version:
        return envelope.payload
    return registry.upcast(kind, version, envelope.payload, to=wanted)


def _prepared(
    envelope: MessageEnvelope, current: MessageEnvelope, route: _Route
) -> Prepared | Unreadable:
    try:
        event = _event(current, route)
    except Misfit as misfit:
        return Unreadable(misfit.code, str(misfit))
    except Exception as error:  # noqa: BLE001 - a model is the user's code, and the loop must not die of it
        return Unreadable(
            "invalid-field",
            f"the model of {envelope.event_type} raised {type(error).__name__}",
        )
    return Prepared(envelope, partial(route.handler, event))


def _event(envelope: MessageEnvelope, route: _Route) -> object:
    """Return what the handler's annotation asks for."""
    model = route.handler.model
    if route.convert is None:
        own = {MessageEnvelope: envelope, bytes: envelope.data}
        return own.get(model, envelope.payload)
    if envelope.data is not None and not is_json(envelope.content_type):
        raise Misfit("wrong-content-type", f"is {envelope.content_type}, and its model needs JSON")
    return route.convert(envelope.payload)


def declared_version(model: Any) -> int | None:
    """Return the schema version that a model names; an event of ours always has one."""
    if isinstance(model, type) and issubclass(model, DomainEvent):
        return schema_version_of(model)
    version = getattr(model, "schema_version", None)
    return version if isinstance(version, int) else None
