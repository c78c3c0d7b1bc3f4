"""A saga as it is written: a class with its steps, and what is done at its end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from pillarbox.consumer.context import Context
from pillarbox.event.domain import event_type_of
from pillarbox.saga.checks import (
    check_hooks,
    check_name,
    check_start,
    check_step,
    check_steps,
    check_topics,
    check_version,
    kinds_of,
    takes_replies,
)
from pillarbox.saga.machine import Outcome, Part, Plan, StepPlan

MakeMessage = Callable[..., object]
Kinds = type | tuple[type, ...]

_LONGEST_WAIT: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a saga; made by `step`."""

    send: MakeMessage
    ok: tuple[type, ...]
    fail: tuple[type, ...] = ()
    undo: MakeMessage | None = None
    undone: tuple[type, ...] = ()
    timeout: timedelta | None = None
    retries: int = 0
    undo_timeout: timedelta = timedelta(minutes=1)
    undo_retries: int = 5
    name: str = ""

    def plan(self) -> StepPlan:
        """Return what the decisions need to know."""
        return StepPlan(
            self.name,
            undoes=self.undo is not None,
            awaits_undo=bool(self.undone),
            tries=self.retries + 1,
            undo_tries=self.undo_retries + 1,
        )

    def message(self, part: Part, start: object, replies: Mapping[str, object]) -> object:
        """Make the message that does or undoes the step."""
        make = self.send if part is Part.DO else self.undo
        if make is None:
            raise ValueError(f"{self.name} has nothing that undoes it")
        return make(start, replies) if takes_replies(make) else make(start)

    def reply(self, part: Part, event_type: str) -> tuple[type, bool] | None:
        """Return the class of a reply, and whether it is a good one; None for any other event."""
        good, bad = (self.ok, self.fail) if part is Part.DO else (self.undone, ())
        for kinds, is_good in ((good, True), (bad, False)):
            for kind in kinds:
                if event_type_of(kind) == event_type:
                    return kind, is_good
        return None

    def wait(self, part: Part, tries: int) -> timedelta | None:
        """Return how long to wait for a reply: twice as long with each message that is sent."""
        first = self.timeout if part is Part.DO else self.undo_timeout
        if first is None:
            return None
        doubled: int = 2 ** min(max(tries, 1) - 1, 30)
        return min(first * doubled, max(first, _LONGEST_WAIT))


def step(
    *,
    send: MakeMessage,
    ok: Kinds,
    fail: Kinds | None = None,
    undo: MakeMessage | None = None,
    undone: Kinds | None = None,
    timeout: timedelta | None = None,
    retries: int = 0,
    undo_timeout: timedelta = timedelta(minutes=1),
    undo_retries: int = 5,
) -> Any:
    """Describe one step: what is sent, which reply is good, which is bad, and how it is undone.

        reserve = step(send=lambda o: ReserveInventory(o.order_id), ok=InventoryReserved,
                       fail=OutOfStock, undo=lambda o: ReleaseInventory(o.order_id),
                       timeout=timedelta(minutes=5), retries=2)

    `send` and `undo` are given the start event and, if they take a second argument, the good replies
    so far by the names of their steps; a step that is undone after a refusal or a time-out has none:
    `replies.get("reserve")`. Without a reply within `timeout` the message is sent again,
    `retries` times, with twice the time each; then the saga goes back. Without `timeout` it waits
    for ever. With `undone` the undoing waits for that reply, and is sent again `undo_retries` times
    before the saga stands STUCK; without, it is done as soon as it is recorded.
    """
    return Step(
        send=send,
        ok=kinds_of("ok", ok),
        fail=kinds_of("fail", fail),
        undo=undo,
        undone=kinds_of("undone", undone),
        timeout=timeout,
        retries=retries,
        undo_timeout=undo_timeout,
        undo_retries=undo_retries,
    )


@dataclass(frozen=True, slots=True)
class Why:
    """Why a saga was compensated: the step, what it came to, and the reply if there was one."""

    step: str
    outcome: Outcome
    reply: object = None

    def __str__(self) -> str:
        told = "" if self.reply is None else f": {type(self.reply).__name__}"
        return f"{self.step} {self.outcome}{told}"


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a saga, checked."""

    kind: "type[Saga]"
    name: str
    version: int
    start: type
    steps: tuple[Step, ...]
    topics: tuple[str, ...] = ()
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", tuple(each.plan() for each in self.steps))

    @property
    def step_names(self) -> list[str]:
        """The names of the steps, in their order."""
        return [each.name for each in self.steps]

    @property
    def replies(self) -> Iterator[type]:
        """The classes of all replies."""
        for each in self.steps:
            yield from (*each.ok, *each.fail, *each.undone)


class Saga:
    """Derive sagas from this class; register them with `@box.saga`.

        @box.saga
        class PlaceOrder(Saga, name="place-order", version=1, starts_on=OrderCreated):
            reserve = step(send=lambda o: ReserveInventory(o.order_id), ok=InventoryReserved,
                           fail=OutOfStock, undo=lambda o: ReleaseInventory(o.order_id))
            charge = step(send=lambda o: Charge(o.order_id, o.total), ok=PaymentProcessed)

            async def completed(self, start, ctx):
                await set_status(ctx.session, start.order_id, "CONFIRMED")

    Each event of `starts_on` starts one saga. The steps run in the order in which they are written;
    a step that fails or is not replied to in time has those before it undone, the last first.
    `topics` are those of the start event and of the replies, unless routing says them. The name
    and the version stand in the table: an instance goes on with the version that it started with.
    """

    definition: ClassVar[Definition]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: int = 1,
        starts_on: type | None = None,
        topics: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        where = f"saga {cls.__qualname__}"
        cls.definition = Definition(
            cls,
            check_name(where, name),
            check_version(where, version),
            start := check_start(where, starts_on),
            tuple(_named_steps(cls)),
            check_topics(where, topics),
        )
        for each in cls.definition.steps:
            check_step(where, each, start)
        check_steps(where, cls.definition.steps)
        check_hooks(where, cls)

    async def completed(self, start: Any, ctx: Context) -> None:
        """Do what follows from success, in the transaction that ends the saga.

        `ctx` is that of the start event: what is recorded here belongs to it.
        """

    async def compensated(self, start: Any, ctx: Context, why: Why) -> None:
        """Do what follows from failure, in the transaction that ends the saga."""


def _named_steps(cls: type) -> Iterator[Step]:
    found: dict[str, Step] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Step):
                found[name] = value
            elif name in found:
                del found[name]
    for name, value in found.items():
        yield replace(value, name=name)
