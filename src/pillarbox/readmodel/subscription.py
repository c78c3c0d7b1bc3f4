"""A read model that follows a subscription: a consumer whose handlers write its rows."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.context import Context, Task
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.signals import NotNow
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.checkpoint import Checkpoints, Generation, State
from pillarbox.readmodel.definition import EventMethod, ModelSession, ReadModel
from pillarbox.readmodel.forgetting import Forgetting
from pillarbox.readmodel.handling import routes_of
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.telling import Heard, Teller
from pillarbox.readmodel.writing import Queued, Writer

log = logging.getLogger("pillarbox.readmodel")

MakeConsumer = Callable[[str, Routes], Consumer]
"""Make a consumer of the model's topics under a name, with these routes."""

FORGET: Final = "pillarbox-forget-cached"
_CHECKED: Final = "pillarbox.readmodel_checked"
_FIRST: Final = 1
_WAIT: Final = timedelta(seconds=1)


def subscriber(name: str, generation: int) -> str:
    """Return the consumer's name of a generation: its inbox and its place at the broker."""
    return name if generation == _FIRST else f"{name}-{generation}"


@dataclass(slots=True)
class Subscriber:
    """One generation of a model, behind a consumer of its own."""

    model: ReadModel
    parts: Parts
    generation: int
    state: State
    make: MakeConsumer
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the generation turned out to be paused or gone."""

    @property
    def name(self) -> str:
        """The name of its consumer."""
        return subscriber(self.model.name, self.generation)

    def consumer(self) -> Consumer:
        """Make the consumer."""
        writer = Writer(
            self.model,
            self.generation,
            shadow=self.state == "filling",
            schema=self.parts.schema,
            alone=False,
        )
        checkpoints = Checkpoints(self.parts.schema)

        async def take(method: EventMethod, event: Any, ctx: Context) -> None:
            await self._check(checkpoints, ctx)
            at = None
            if method.works_on_session:
                at = ModelSession(ctx.session, writer.table, ctx.envelope)
            changes = await method.changes(event, ctx.envelope, at)
            queued = [Queued(ctx.envelope, changes)]
            written = await writer.write(ctx.session, ctx.tenant_id, queued)
            if written and self.parts.cache is not None and self.state == "live":
                ctx.after_commit(FORGET, tenant_id=ctx.tenant_id, row_ids=sorted(written))

        routes = routes_of(self.model, take, self.parts.registry, self.parts.rules)
        made = self.make(self.name, routes)
        if self.parts.cache is not None:
            made.tasks[FORGET] = Task(FORGET, _forgetting(self.parts.cache, self.model.name))
        return made

    @asynccontextmanager
    async def told(self, heard: Heard | None = None) -> AsyncIterator[Consumer]:
        """Make the consumer; it tells how it stands, and at the end that it leaves."""
        consumer = self.consumer()
        teller = Teller((self.model.name, self.generation), self.parts, consumer, heard)
        try:
            yield consumer
        finally:
            await teller.leave()

    @asynccontextmanager
    async def stopping(self, consumer: Consumer) -> AsyncIterator[None]:
        """Stop the consumer when the generation turns out to be paused or gone.

        Its messages are not counted as tried: it would try them for ever.
        """

        async def stop() -> None:
            await self.moved.wait()
            consumer.stop()

        watching = asyncio.ensure_future(stop())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _check(self, checkpoints: Checkpoints, ctx: Context) -> None:
        """Hold the generation as it is until the commit; once in a transaction.

        A savepoint is a transaction of its own here: its rollback lets go of the row.
        """
        session = ctx.session.sync_session
        within = session.get_nested_transaction() or session.get_transaction()
        if session.info.get(_CHECKED) is within:
            return
        place = (self.model.name, self.generation, self.state)
        if not await checkpoints.goes_on(ctx.session, *place):
            self.moved.set()
            raise NotNow(_WAIT, "the read model is paused, or was built again")
        session.info[_CHECKED] = within


class SubscribedRunner:
    """Run a read model that follows a subscription, in as many processes as you like.

    It is a consumer with the model's name. When the model is paused or built again, the consumer is
    stopped, and another one begins when it may go on.
    """

    def __init__(self, model: ReadModel, parts: Parts, make: MakeConsumer) -> None:
        self.model, self.parts = model, parts
        self._make = make
        self._checkpoints = Checkpoints(parts.schema)
        self._forgetting = Forgetting(model.name, parts)
        self._stopped, self._woken = False, asyncio.Event()
        self._following: Subscriber | None = None

    async def run_forever(self) -> None:
        """Take messages into the model until `stop`."""
        while not self._stopped:
            self._woken.clear()
            try:
                at = await self.begun()
            except DatabaseAway as error:
                log.warning("database_away", extra={"error": str(error)})
                self.parts.observer.database_away(error)
                at = None
            if at is None or at.paused:
                await self._rest()
            else:
                await self._follow(at)

    async def drain(self) -> None:
        """Take what there is into the model and end: for tests and for jobs."""
        at = await self.begun()
        if not at.paused:
            following = self._subscriber(at)
            async with following.told() as consumer, following.stopping(consumer):
                await consumer.drain()

    def stop(self) -> None:
        """Finish what is in hand and end."""
        self._stopped = True
        self._woken.set()
        if self._following is not None:
            self._following.moved.set()

    async def begun(self) -> Generation:
        """Return the live generation, paused also while it stands still; a missing one begins.

        Raise `ReadModelSourceChanged` if it comes from the log.
        """
        return (await self._live()).following("bus")

    async def _live(self) -> Generation:
        async with self.parts.transactions.begin(None) as session:
            found = await self._checkpoints.find(session, self.model.name)
            if found is None:
                begun = Generation(
                    name=self.model.name, generation=_FIRST, source="bus", state="live"
                )
                found = begun
                if not await self._checkpoints.begin(session, begun):
                    # Somebody else began in the same moment, maybe from the log.
                    found = await self._checkpoints.find(session, self.model.name)
            if found is None:
                # A first rebuild has the number, be it under way or killed.
                filling = await self._checkpoints.find(session, self.model.name, "filling")
                if filling is not None:
                    filling.following("bus")
                raise DatabaseAway(LookupError("the model's row went away"))
            still = await self._checkpoints.stands_still(session, self.model.name)
        if found.source == "bus":
            await self._forgetting.settle(found)
        return replace(found, paused=found.paused or still)

    def _subscriber(self, at: Generation) -> Subscriber:
        return Subscriber(self.model, self.parts, at.generation, at.state, self._make)

    async def _follow(self, at: Generation) -> None:
        """Run the consumer of a generation until it is paused, gone, or we are to stop."""
        following = self._following = self._subscriber(at)
        async with following.told() as consumer, asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run_forever())
            watching = group.create_task(self._watch(at, following, consumer))
            await running
            watching.cancel()

    async def _watch(self, at: Generation, following: Subscriber, consumer: Consumer) -> None:
        while not self._stopped and not following.moved.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.parts.config.look_every):
                    await following.moved.wait()
            with suppress(DatabaseAway):
                found = await self._live()
                if found.paused or found.generation != at.generation:
                    break
        consumer.stop()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.parts.config.look_every):
                await self._woken.wait()

    def __repr__(self) -> str:
        return f"<SubscribedRunner {self.model.name}>"


def _forgetting(cache: RowCache, model: str) -> Callable[..., Any]:
    async def forget(tenant_id: str, row_ids: list[str]) -> None:
        await cache.forget(model, [(tenant_id, row_id) for row_id in row_ids])

    return forget
