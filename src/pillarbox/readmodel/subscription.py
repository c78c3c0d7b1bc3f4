"""A read model that follows a subscription: a consumer whose handlers write its rows."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, select

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.context import Context, Task
from pillarbox.consumer.routes import Routes
from pillarbox.consumer.signals import Retry
from pillarbox.consumer.tenants import Tenants
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import HistoryIncomplete, ReadModelUnknown, RebuildFailed
from pillarbox.readmodel.cache import RowCache
from pillarbox.readmodel.checkpoint import STILL, Checkpoints, Generation, State
from pillarbox.readmodel.definition import EventMethod, ModelSession, ReadModel
from pillarbox.readmodel.filling import Filling
from pillarbox.readmodel.handling import routes_of
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.progress import Phase, Reporter, unheard
from pillarbox.readmodel.rebuild import replace_rows
from pillarbox.readmodel.telling import Heard, Teller
from pillarbox.readmodel.writing import Queued, Writer
from pillarbox.schema.tables import inbox_parked

log = logging.getLogger("pillarbox.readmodel")

MakeConsumer = Callable[[str, Routes], Consumer]
"""Make a consumer of the model's topics under a name, with these routes."""

Forgotten = Callable[[], Awaitable[Sequence[str]]]
"""Say where the broker's log of the model's topics does not reach the first event."""

FORGET: Final = "pillarbox-forget-cached"
_CHECKED: Final = "pillarbox.readmodel_checked"
_FIRST: Final = 1
_WAIT: Final = timedelta(seconds=1)
_RENEW: Final = STILL.total_seconds() / 3


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
            raise Retry(_WAIT, "the read model is paused, or was built again")
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
            async with self._subscriber(at).told() as consumer:
                await consumer.drain()

    def stop(self) -> None:
        """Finish what is in hand and end."""
        self._stopped = True
        self._woken.set()
        if self._following is not None:
            self._following.moved.set()

    async def begun(self) -> Generation:
        """Return the live generation, paused also while it stands still; a missing one begins."""
        async with self.parts.transactions.begin(None) as session:
            found = await self._checkpoints.find(session, self.model.name)
            if found is None:
                begun = Generation(
                    name=self.model.name, generation=_FIRST, source="bus", state="live"
                )
                await self._checkpoints.begin(session, begun)
                found = begun
            still = await self._checkpoints.stands_still(session, self.model.name)
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
                found = await self.begun()
                if found.paused or found.generation != at.generation:
                    break
        consumer.stop()

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.parts.config.look_every):
                await self._woken.wait()

    def __repr__(self) -> str:
        return f"<SubscribedRunner {self.model.name}>"


class SubscribedRebuild:
    """Build a model again from the broker's log, by a consumer that begins with its oldest message.

    The live consumer goes on meanwhile; it stands still while the new one takes the last messages.
    """

    def __init__(
        self,
        model: ReadModel,
        parts: Parts,
        make: MakeConsumer,
        forgotten: Forgotten,
        *,
        report: Reporter = unheard,
    ) -> None:
        self._model, self._parts, self._make, self._report = model, parts, make, report
        self._forgotten = forgotten
        self._checkpoints = Checkpoints(parts.schema)

    async def run(self) -> None:
        """Begin or go on, fill, switch, clean up."""
        at = await self.begin()
        following = Subscriber(self._model, self._parts, at.generation, "filling", self._make)
        filling = Filling(at, self._parts, self._report)
        await self._fill(following, filling, "filling")
        try:
            await self._fill(following, filling, "switching")
            while not await self.switch():
                await self._fill(following, filling, "switching")
        except BaseException:
            with suppress(DatabaseAway):
                await self._hold_still(still=False)
            raise
        filling.tell("done")

    async def begin(self) -> Generation:
        """Write the filling generation, unless one is there already; return it."""
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            found = await self._checkpoints.find(session, name, "filling")
        if found is None:
            await self._refuse_cut()
        async with self._parts.transactions.begin(None) as session:
            live = await self._checkpoints.find(session, name, lock=True)
            found = await self._checkpoints.find(session, name, "filling", lock=True)
            if found is not None:
                return found
            if live is None:
                raise ReadModelUnknown(name)
            await session.execute(delete(self._model.shadow))
            new = Generation(
                name=name, generation=live.generation + 1, source="bus", state="filling"
            )
            await self._checkpoints.begin(session, new)
        return new

    async def switch(self) -> bool:
        """Make the filled generation the live one, in one transaction.

        Return False if the live one has not stood still: the new one may be behind it.
        """
        name = self._model.name
        async with self._parts.transactions.begin(None) as session:
            live = await self._checkpoints.find(session, name, lock=True)
            new = await self._checkpoints.find(session, name, "filling", lock=True)
            if new is None:
                raise ReadModelUnknown(name)
            if not await self._checkpoints.stands_still(session, name):
                return False
            await replace_rows(session, self._model.table, self._model.shadow)
            await session.execute(delete(self._model.shadow))
            await self._checkpoints.switch(session, live, new)
            await self._checkpoints.tidy(session, name)
        if self._parts.cache is not None:
            await self._parts.cache.forget_all(name)
        return True

    async def _fill(self, following: Subscriber, filling: Filling, phase: Phase) -> None:
        """Take all that the broker has; refuse a part of it, and what was set aside on the way.

        To be switched, the live generation stands still meanwhile.
        """
        seconds = self._parts.config.fill_timeout
        if phase == "switching":
            await self._hold_still(still=True)
        caught_up = await self._caught_up(following, filling, phase)
        if following.moved.is_set():
            raise RebuildFailed(self._model.name, None, None, "another rebuild of it was first")
        if not caught_up:
            reason = f"in {seconds:g} s of silence the broker did not say that it has nothing more"
            raise RebuildFailed(self._model.name, None, None, reason)
        aside = await self._set_aside(following.name)
        if aside is not None:
            reason = (
                f"{aside.error_class or aside.reason}: {aside.error_message or 'no message'} and is "
                f"set aside for the consumer {following.name!r}, where it is retried or dropped"
            )
            raise RebuildFailed(self._model.name, aside.message_id, None, reason)

    async def _caught_up(self, following: Subscriber, filling: Filling, phase: Phase) -> bool:
        """Take messages to the end, or until the generation turns out to be another's."""
        patience, still = timedelta(seconds=self._parts.config.fill_timeout), phase == "switching"
        async with following.told(filling.hear) as consumer, filling.by(consumer, phase):
            watching = asyncio.ensure_future(self._watch(following, consumer, still=still))
            try:
                return await consumer.catch_up(patience)
            finally:
                watching.cancel()
                await asyncio.wait({watching})

    async def _watch(self, following: Subscriber, consumer: Consumer, *, still: bool) -> None:
        while not following.moved.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_RENEW):
                    await following.moved.wait()
            if still:
                with suppress(DatabaseAway):
                    await self._hold_still(still=True)
        consumer.stop()

    async def _set_aside(self, consumer: str) -> Row[Any] | None:
        """Return the first message that the filling consumer could not apply."""
        transactions = self._parts.transactions
        table = transactions.table(inbox_parked)
        query = select(table).where(table.c.consumer == consumer).order_by(table.c.seq).limit(1)
        for tenant_id in await Tenants(consumer, transactions).to_ask():
            async with transactions.begin(tenant_id) as session:
                found = (await session.execute(query)).one_or_none()
            if found is not None:
                return found
        return None

    async def _refuse_cut(self) -> None:
        """Refuse a broker's log that does not begin with its first message."""
        if self._parts.config.history == "whole" and (gone := await self._forgotten()):
            remedy = "let the model follow the outbox's log"
            raise HistoryIncomplete(self._model.name, "; ".join(gone), remedy)

    async def _hold_still(self, *, still: bool) -> None:
        """Have the live generation stand still, or go on."""
        async with self._parts.transactions.begin(None) as session:
            await self._checkpoints.hold_still(session, self._model.name, still=still)


def _forgetting(cache: RowCache, model: str) -> Callable[..., Any]:
    async def forget(tenant_id: str, row_ids: list[str]) -> None:
        await cache.forget(model, [(tenant_id, row_id) for row_id in row_ids])

    return forget
