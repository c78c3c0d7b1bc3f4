"""The definition of a read model: a class with a table and a method for each event."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, Table
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.errors import InvalidConfig
from pillarbox.event.domain import event_type_of
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.readmodel.changes import Change, changes_of
from pillarbox.readmodel.defaults import defaults_of

# A generation's number is added to it for a subscription of its own.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,89}", re.ASCII)
_EVENT_TYPE: Final = "__pillarbox_event_type__"
_SHADOW: Final = "_shadow"
TENANT_COLUMN: Final = "tenant_id"

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ModelSession:
    """What a method is given that works on the session itself.

        @on(OrderPlaced)
        async def placed(self, event: OrderPlaced, model: ModelSession) -> None:
            await model.session.execute(insert(model.table).values(...))

    Write to `table`: it is the live table, or the shadow table while the model is built again. Every
    event comes once; leave commit and rollback to the runner.
    """

    session: AsyncSession
    table: Table
    envelope: MessageEnvelope

    @property
    def tenant_id(self) -> str:
        """The tenant of the event."""
        return self.envelope.tenant_id


def on(event: type | str) -> Callable[[Method], Method]:
    """Say which event a method of a read model takes: its class, or its name on the wire."""
    name = event if isinstance(event, str) else event_type_of(event)

    def mark(method: Method) -> Method:
        setattr(method, _EVENT_TYPE, name)
        return method

    return mark


@dataclass(frozen=True, slots=True)
class EventMethod:
    """A method with what it is told beside the event: nothing, the envelope, or the session."""

    name: str
    method: Callable[..., Any]
    model: Any
    beside: type | None
    waits: bool

    @property
    def works_on_session(self) -> bool:
        """Whether it writes by itself, and must see what was written before it."""
        return self.beside is ModelSession

    async def changes(
        self, event: object, envelope: MessageEnvelope, at: ModelSession | None
    ) -> tuple[Change, ...]:
        """Call the method for an event; return the changes that it answers."""
        beside = at if self.works_on_session else envelope
        answer = self.method(event) if self.beside is None else self.method(event, beside)
        return changes_of(await answer if self.waits else answer, self.name)


class ReadModel:
    """Derive a read model from this class: a name, a table, and a method for each event.

        class RoutePlans(ReadModel, name="route-plans", table=RoutePlanProjection):
            @on(RoutePlanned)
            def planned(self, event: RoutePlanned, about: MessageEnvelope) -> Change:
                return Upsert(event.plan_id, status="PLANNED", stop_cnt=len(event.stops))

            @on(StopAdded)
            def stop_added(self, event: StopAdded) -> Change:
                return Increment(event.plan_id, stop_cnt=1)

    The table has the primary key (tenant_id, id column); a second one, named `…_shadow`, is put beside it
    into its metadata, for rebuilding. The default of a number must be a constant. A method returns a
    change, a list of changes or None, or is a coroutine that works on a `ModelSession`. The name stands
    in the database: another name is another model, which begins anew.
    """

    name: ClassVar[str]
    table: ClassVar[Table]
    shadow: ClassVar[Table]
    id_column: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]]

    def __init_subclass__(
        cls, *, name: str | None = None, table: Any = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if name is None and table is None:
            return  # a base of models
        cls.name = _checked_name(cls, name)
        cls.table = _checked_table(cls, table)
        cls.id_column = _id_column(cls)
        cls.defaults = defaults_of(f"{cls.__name__}.table", cls.table)
        cls.shadow = _shadow_of(cls.table)

    def methods(self) -> Mapping[str, EventMethod]:
        """Return the method of each event type; refuse two for one, and signatures nobody can call."""
        found: dict[str, EventMethod] = {}
        for attribute, member in inspect.getmembers(self, inspect.ismethod):
            event_type = getattr(member, _EVENT_TYPE, None)
            if event_type is None:
                continue
            what = f"{type(self).__name__}.{attribute}"
            if event_type in found:
                raise InvalidConfig(
                    what, f"is a second method for {event_type!r}", "do both in one method"
                )
            found[event_type] = _event_method(what, member)
        if not found:
            raise InvalidConfig(
                type(self).__name__, "takes no event", "mark a method with @on(Event)"
            )
        return found


def _event_method(what: str, method: Callable[..., Any]) -> EventMethod:
    names = list(inspect.signature(method).parameters)
    try:
        hints = typing.get_type_hints(method)
    except NameError as error:
        raise InvalidConfig(
            what,
            f"names {error.name!r} in an annotation, which is not found",
            "define it at the top of a module, or import it outside `if TYPE_CHECKING`",
        ) from error
    beside = [hints.get(name) for name in names[1:]]
    if not names or beside not in ([], [MessageEnvelope], [ModelSession]):
        raise InvalidConfig(
            what,
            f"takes ({', '.join(names)})",
            "take an event, and beside it an annotated MessageEnvelope or ModelSession, or nothing",
        )
    waits = inspect.iscoroutinefunction(method)
    if beside == [ModelSession] and not waits:
        raise InvalidConfig(what, "works on the session", "make it `async def`")
    return EventMethod(what, method, hints.get(names[0], Any), beside[0] if beside else None, waits)


def _checked_name(cls: type, name: str | None) -> str:
    if name is None or _NAME.fullmatch(name) is None:
        raise InvalidConfig(
            f"{cls.__name__}.name",
            "is no name that every broker takes",
            'use 1 to 90 ASCII letters, digits, _ and -, as in name="route-plans"',
        )
    return name


def _checked_table(cls: type, table: Any) -> Table:
    found = getattr(table, "__table__", table)
    if not isinstance(found, Table):
        raise InvalidConfig(
            f"{cls.__name__}.table", "is no table", "pass a mapped class or a Table"
        )
    return found


def _id_column(cls: type[ReadModel]) -> str:
    key = [column.key for column in cls.table.primary_key]
    if len(key) != 2 or key[0] != TENANT_COLUMN:  # noqa: PLR2004 - tenant and id
        raise InvalidConfig(
            f"{cls.__name__}.table",
            f"has the primary key ({', '.join(key)})",
            "let it be (tenant_id, id): the tenant, and one column that names the row",
        )
    return key[1]


def _shadow_of(table: Table) -> Table:
    """Return the table beside the live one; it has its columns and its key, no other index."""
    name = f"{table.name}{_SHADOW}"
    qualified = f"{table.schema}.{name}" if table.schema else name
    if qualified in table.metadata.tables:
        return table.metadata.tables[qualified]
    # A copy by way of other metadata: what is attached to a table cannot be attached twice.
    copied = table.to_metadata(MetaData(), name=name)
    columns = [_free(column) for column in copied.columns]
    key = PrimaryKeyConstraint(*(column.key for column in copied.primary_key))
    return Table(name, table.metadata, *columns, key, schema=table.schema)


def _free(column: Column[Any]) -> Column[Any]:
    return Column(
        column.name,
        column.type,
        nullable=column.nullable,
        default=column.default,
        # What only says that the table has one is passed on as it is.
        server_default=getattr(column.server_default, "arg", column.server_default),
        key=column.key,
    )
