"""The sagas of a service: their versions side by side, each name with a consumer of its own."""

import random
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.consumer import Consumer
from pillarbox.errors import InvalidConfig
from pillarbox.event.domain import class_setting, event_type_of
from pillarbox.event.registry import EventRegistry
from pillarbox.event.rules import check_topic
from pillarbox.outbox.routing import Origin
from pillarbox.outbox.settings import CaptureSettings
from pillarbox.saga.carrying import Carrying
from pillarbox.saga.definition import Definition, Saga
from pillarbox.saga.observer import SagaObserver
from pillarbox.saga.receiving import Receiving
from pillarbox.saga.retention import Retention
from pillarbox.saga.store import Store
from pillarbox.saga.timers import Timers

PREFIX: Final = "saga-"
"""Before a saga's name, that of its consumer."""


class MakeConsumer(Protocol):
    """How a service makes its consumers."""

    def __call__(
        self,
        name: str,
        topics: Sequence[str],
        *,
        config: ConsumerConfig | None = None,
    ) -> Consumer:
        """Make a consumer of topics, which runs with the others of the service."""
        ...


class Sagas:
    """Know the sagas of a service, by name and version."""

    def __init__(
        self, make: MakeConsumer, registry: EventRegistry, settings: CaptureSettings
    ) -> None:
        self._make, self._registry, self._settings = make, registry, settings
        self.versions: dict[str, dict[int, Definition]] = {}
        self._consumers: dict[str, tuple[Consumer, Receiving]] = {}

    def add(
        self,
        kind: type[Saga],
        config: ConsumerConfig | None = None,
        observer: SagaObserver | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Add a version of a saga; the first of a name makes the consumer that receives it."""
        definition = _definition_of(kind)
        known = self.versions.get(definition.name, {})
        _check_beside(definition, known)
        topics = self._topics(definition)
        if not known:
            self._found(definition, topics, config, observer, chance)
        elif config is not None or observer is not None:
            problem = "is a further version, with a config or an observer of its own"
            raise InvalidConfig(_where(definition), problem, "pass them with the first version")
        self.versions[definition.name][definition.version] = definition
        self._listen(definition, topics)

    def _found(
        self,
        definition: Definition,
        topics: Sequence[str],
        config: ConsumerConfig | None,
        observer: SagaObserver | None,
        chance: random.Random | None,
    ) -> None:
        name = definition.name
        made = self._make(PREFIX + name, topics, config=config)
        carrying = Carrying(
            Store(name, self._settings.schema),
            self.versions.setdefault(name, {}),
            self._registry,
            observer or SagaObserver(),
            chance or random.Random(),  # noqa: S311 - jitter needs no secret
        )
        made.chores += [
            Timers(carrying),
            Retention(carrying.store, carrying.chance, time.monotonic),
        ]
        receiving = Receiving(carrying, self._settings.new_id)
        made.routes.otherwise(receiving.other)
        self._consumers[name] = made, receiving

    def _listen(self, definition: Definition, topics: Sequence[str]) -> None:
        made, receiving = self._consumers[definition.name]
        made.listen(topics)
        start = event_type_of(definition.start)
        for event_type in dict.fromkeys((start, *map(event_type_of, definition.replies))):
            if event_type not in made.routes.event_types:
                handler = receiving.start if event_type == start else receiving.reply
                made.routes.add(event_type, handler)

    def _topics(self, definition: Definition) -> Sequence[str]:
        """Return where the start event and the replies come from."""
        if definition.topics:
            found = definition.topics
        else:
            kinds = dict.fromkeys((definition.start, *definition.replies))
            found = tuple(dict.fromkeys(self._topic(definition, kind) for kind in kinds))
        return [check_topic(topic, self._settings.rules) for topic in found]

    def _topic(self, definition: Definition, kind: type) -> str:
        if topic := class_setting(kind, "topic"):
            return topic
        service, routing = self._settings.service, self._settings.routing
        aggregate, event_type = class_setting(kind, "aggregate_type"), event_type_of(kind)
        one, other = (
            routing.topic(Origin(service, tenant, aggregate, event_type)) for tenant in ("a", "b")
        )
        if one is None or one != other:
            problem = f"does not say where {event_type} comes from"
            remedy = (
                f"set topic or aggregate_type on {kind.__name__}, or pass topics=[…] to the saga"
            )
            raise InvalidConfig(_where(definition), problem, remedy)
        return one


def _definition_of(kind: Any) -> Definition:
    if not isinstance(kind, type) or not issubclass(kind, Saga) or kind is Saga:
        raise InvalidConfig("saga", "is no class of sagas", "derive it from Saga")
    return kind.definition


def _check_beside(definition: Definition, known: dict[int, Definition]) -> None:
    """Refuse a version that cannot stand beside the others."""
    if definition.version in known:
        problem = f"has its version {definition.version} registered already"
        raise InvalidConfig(_where(definition), problem, "give the changed one the next version")
    starts = {event_type_of(other.start) for other in known.values()}
    if starts - {event_type_of(definition.start)}:
        problem = f"starts on another event than its other versions, {min(starts)}"
        raise InvalidConfig(_where(definition), problem, "give the saga another name")


def _where(definition: Definition) -> str:
    return f"saga {definition.name}"
