"""A consumer: its name, its topics, its handlers; run it as many times as there is work for."""

import random
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.consumer.chores import Chore
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Task
from pillarbox.consumer.handlers import HandlerFunction
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.named_tasks import TaskFunction, task_of
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.standing import Standing
from pillarbox.consumer.telling import Listener
from pillarbox.consumer.transactions import SessionFactory
from pillarbox.errors import InvalidConfig
from pillarbox.event.domain import event_type_of

Subscribe = Callable[[SubscriptionRequest], Subscription]
Function = TypeVar("Function", bound=HandlerFunction)

# What every broker takes for the name of a group, a queue or a durable.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)


class Consumer:
    """Take messages of some topics into effect, each once, in the order of its key.

        pay = box.consumer("payments", topics=["orders.order"])

        @pay.on("OrderCreated")
        async def charge(event: OrderCreated, ctx: Context) -> None:
            ctx.session.add(Payment(order_id=event.order_id, amount=event.total))

    The name stands in the inbox: another name is another consumer, for whom every message is new.
    Several processes with one name share the work.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        subscribe: Subscribe,
        session_factory: SessionFactory,
        *,
        routes: Routes | None = None,
        config: ConsumerConfig | None = None,
        observer: Observer | None = None,
        schema: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: random.Random | None = None,
    ) -> None:
        self.name, self.topics = _checked_name(name), _checked_topics(topics)
        self.routes = routes or Routes()
        self.tasks: dict[str, Task] = {}
        self.chores: list[Chore] = []
        self.listener: Listener | None = None
        self.config = config or ConsumerConfig()
        self.observer = observer or Observer()
        self._subscribe, self._session_factory, self._schema = subscribe, session_factory, schema
        self.clock, self._chance = clock, chance
        self._loop: ConsumerLoop | None = None
        self._stopped = False

    def on(
        self, event_type: str | type, *, schema_version: int | None = None
    ) -> Callable[[Function], Function]:
        """Register the handler of an event type: its name on the wire, or a class that has it.

        The annotation of its first argument is any local model. `schema_version` is the version
        that the model stands for, where the model itself does not say it.
        """
        name = event_type if isinstance(event_type, str) else event_type_of(event_type)

        def register(function: Function) -> Function:
            self.routes.add(name, function, schema_version=schema_version)
            return function

        return register

    def task(self, name: str) -> Callable[[TaskFunction], Task]:
        """Register a function that handlers call by `ctx.after_commit`; keep its name for ever."""

        def register(function: TaskFunction) -> Task:
            if name in self.tasks:
                raise InvalidConfig(f"task {name!r}", "is there already", "choose another name")
            self.tasks[name] = task_of(name, function)
            return self.tasks[name]

        return register

    def listen(self, topics: Sequence[str]) -> None:
        """Take messages of more topics, from the next run on."""
        self.topics = _checked_topics((*self.topics, *topics))

    async def run_forever(self) -> None:
        """Receive and handle messages until `stop`."""
        if not self._stopped:
            await self._made_loop().run_forever()

    async def drain(self) -> None:
        """Handle what there is and end: for tests and for jobs."""
        await self._made_loop().drain()

    async def catch_up(self, patience: timedelta) -> bool:
        """Handle messages until the broker says that nothing waits, and tell whether it did.

        Without that word it ends after as much silence as the patience allows.
        """
        return await self._made_loop().catch_up(patience)

    def stop(self) -> None:
        """Finish what is in hand and end; a second call does not wait for handlers."""
        self._stopped = True
        if self._loop is not None:
            self._loop.stop()

    def standing(self) -> Standing:
        """Return how the run of this member stands, or has ended, without the broker's word."""
        return Standing() if self._loop is None else self._loop.standing()

    @property
    def request(self) -> SubscriptionRequest:
        """What this consumer asks a bus for."""
        return SubscriptionRequest(self.name, self.topics, self.config.window)

    def _made_loop(self) -> ConsumerLoop:
        self._loop = ConsumerLoop(
            self.name,
            self.routes,
            self._subscribe(self.request),
            self._session_factory,
            self.config,
            tasks=self.tasks,
            chores=self.chores,
            listener=self.listener,
            observer=self.observer,
            clock=self.clock,
            chance=self._chance,
            schema=self._schema,
        )
        return self._loop

    def __repr__(self) -> str:
        return f"<Consumer {self.name} of {', '.join(self.topics)}>"


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidConfig(
            "consumer",
            "has a name that some broker refuses",
            "use 1 to 100 ASCII letters, digits, _ and -, with a letter or digit first",
        )
    return name


def _checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    if isinstance(topics, str) or not topics or not all(topics):
        raise InvalidConfig("topics", "names no topic", 'pass a list of names, as ["orders.order"]')
    return tuple(dict.fromkeys(topics))
