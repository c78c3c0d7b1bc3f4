"""Aggregates collect the events that they raise; a unit of work records them at its commit."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple
from uuid import UUID
from weakref import WeakMethod

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.event.context import current_headers
from pillarbox.event.encoders import DEFAULT_ENCODERS, Encoders
from pillarbox.event.ids import id_maker
from pillarbox.event.payload import encode_json, event_fields

_new_id = id_maker()
_raise_numbers = itertools.count(1)

Watcher = Callable[["AggregateRoot"], None]


def next_raise_number() -> int:
    """Draw a number that tells which of two events of this process was raised first."""
    return next(_raise_numbers)


class RaisedEvent(NamedTuple):
    """An event that was raised and waits for its transaction to commit.

    The payload is encoded at once, so that a bad value is refused where it is raised and nothing
    can change it afterwards.
    """

    event: object
    payload: str
    event_id: UUID
    occurred_at: datetime
    number: int
    inherited: Mapping[str, str]
    options: Mapping[str, Any]


class AggregateRoot:
    """Mix this into a mapped class, or derive a plain domain class from it.

        class Order(AggregateRoot, Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(primary_key=True)
            version: Mapped[int] = mapped_column()
            __mapper_args__ = {"version_id_col": version}

            def confirm(self) -> None:
                self.add_event(OrderConfirmed(self.id))

    `aggregate_type` is the class name unless set. The aggregate id is `id`, unless the class has
    an attribute `aggregate_id`. `event_encoders` extends what payloads may hold.
    """

    aggregate_type: ClassVar[str | None] = None
    event_encoders: ClassVar[Encoders] = DEFAULT_ENCODERS

    def add_event(
        self,
        event: object,
        *,
        key: str | int | UUID | None = None,
        topic: str | None = None,
        routing_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        deliver_at: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> UUID:
        """Raise an event; it is recorded if, and only if, the transaction commits.

        Touches no database. Returns the event's id.
        """
        options = {
            "key": key,
            "topic": topic,
            "routing_key": routing_key,
            "headers": headers,
            "deliver_at": deliver_at,
            "expires_at": expires_at,
        }
        raised = RaisedEvent(
            event=event,
            payload=encode_json(event_fields(event), encoders=self.event_encoders),
            event_id=_new_id(),
            occurred_at=SYSTEM_CLOCK.now(),
            number=next_raise_number(),
            inherited=current_headers(),
            options={name: value for name, value in options.items() if value is not None},
        )
        self.__dict__.setdefault("_raised_events", []).append(raised)
        reference = self.__dict__.get("_event_watcher")
        watcher: Watcher | None = None if reference is None else reference()
        if watcher is not None:
            watcher(self)
        return raised.event_id

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()  # a dictionary, or a pair of it and the slots
        own = dict((state[0] if isinstance(state, tuple) else state) or {})
        own.pop("_event_watcher", None)
        if "_raised_events" in own:
            own["_raised_events"] = list(own["_raised_events"])  # a copy raises for itself
        return (own, state[1]) if isinstance(state, tuple) else own

    @property
    def pending_events(self) -> Sequence[object]:
        """The events that were raised and are not yet recorded, oldest first."""
        return tuple(raised.event for raised in raised_events(self))


def raised_events(aggregate: AggregateRoot) -> Sequence[RaisedEvent]:
    """Return what an aggregate raised and no commit has recorded yet."""
    return tuple(aggregate.__dict__.get("_raised_events", ()))


def forget_events(aggregate: AggregateRoot, forgotten: Callable[[RaisedEvent], bool]) -> None:
    """Take raised events off an aggregate: recorded ones, or ones whose work was undone."""
    kept = [raised for raised in raised_events(aggregate) if not forgotten(raised)]
    aggregate.__dict__["_raised_events"] = kept


def watch_events(aggregate: AggregateRoot, watcher: Watcher) -> None:
    """Tell a session's capture whenever this aggregate raises an event.

    The identity map holds clean objects only weakly; without this, an aggregate that merely
    raised an event could be collected before the commit, and its event with it.
    """
    aggregate.__dict__["_event_watcher"] = WeakMethod(watcher)  # must not keep the session
    if raised_events(aggregate):
        watcher(aggregate)
