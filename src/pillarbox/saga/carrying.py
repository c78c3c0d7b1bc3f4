"""Carry out a move: send what it says, run what follows from an end, write how the saga stands."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.context import Context
from pillarbox.errors import SagaChanged, SagaVersionMissing
from pillarbox.event.context import correlation
from pillarbox.event.registry import EventRegistry
from pillarbox.outbox.new_event import NewEvent
from pillarbox.outbox.outbox import SqlAlchemyOutbox
from pillarbox.saga.definition import Definition, Why
from pillarbox.saga.machine import ENDED, Move, Part, Place, State, Wish, wished
from pillarbox.saga.observer import SagaObserver
from pillarbox.saga.reading import read_event
from pillarbox.saga.rows import Instance, StepRow
from pillarbox.saga.store import Store

# Timers that were set together do not ring together: each is up to a tenth later, 30 s at most.
_SPREAD: Final = 0.1
_WIDEST: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Carrying:
    """What the saga of one name needs in order to go on, in all its versions."""

    store: Store
    versions: Mapping[int, Definition]
    registry: EventRegistry
    observer: SagaObserver
    chance: random.Random

    def definition_of(self, held: Instance) -> Definition:
        """Return the definition that a saga was started with, or raise."""
        found = self.versions.get(held.version)
        if found is None:
            raise SagaVersionMissing(held.name, held.version, sorted(self.versions))
        if found.step_names != held.step_names:
            raise SagaChanged(held.name, held.version, held.step_names, found.step_names)
        return found

    async def wish(self, ctx: Context, held: Instance) -> None:
        """Carry out what an operator wants of a saga; what is too late for it is dropped."""
        wish, held.wish = held.wish, None
        if wish is None:
            return
        if wish is Wish.CANCEL:  # it needs no definition, so a version that is missing can go
            move = wished((), held.progress, wish)
        else:
            move = wished(self.definition_of(held).plan, held.progress, wish)
        await self.carry_out(ctx, held, move or Move(held.progress))

    async def carry_out(self, ctx: Context, held: Instance, move: Move) -> None:
        """Do what a move says, in the transaction of `ctx`; its envelope is what caused it."""
        was = held.progress.state
        if move.sends:
            await self._send(ctx, held, move)
        held.progress = move.progress
        state = held.progress.state
        if state in (State.COMPLETED, State.COMPENSATED):
            await self._conclude(ctx, held)
        await self.store.save(ctx.session, held, self._wait(held))
        if state is not was and state in (*ENDED, State.STUCK):
            ctx.told.append(lambda: self.observer.stood(held.name, state))

    async def _send(self, ctx: Context, held: Instance, move: Move) -> None:
        """Record the messages of a move: of this saga, caused by what the context has in hand."""
        definition = self.definition_of(held)
        start = self._start(definition, held)
        for place in move.sends:
            made = definition.steps[place.step].message(
                place.part, start, self._replies(definition, held)
            )
            with correlation(str(held.saga_id), causation_id=ctx.envelope.event_id):
                message_id = await _record(ctx.session, held, made)
            row = held.steps.setdefault(place, StepRow(place))
            row.messages.append(str(message_id))

    async def _conclude(self, ctx: Context, held: Instance) -> None:
        """Run what follows from an end. What it records belongs to the start event."""
        definition = self.definition_of(held)
        saga, start = definition.kind(), self._start(definition, held)
        begun = Context(
            consumer=ctx.consumer,
            envelope=held.start,
            session=ctx.session,
            tasks=ctx.tasks,
            told=ctx.told,
        )
        start_id = held.start.event_id
        known = held.start.headers.get("correlationid", start_id)
        with correlation(known, causation_id=start_id):
            if held.progress.state is State.COMPLETED:
                await saga.completed(start, begun)
            else:
                await saga.compensated(start, begun, self._why(definition, held))

    def _start(self, definition: Definition, held: Instance) -> Any:
        return read_event(self.registry, definition.start, held.start)

    def _replies(self, definition: Definition, held: Instance) -> dict[str, object]:
        """Return the good replies of steps: a bad one is no reply that a later message may build on."""
        found = {}
        for place, reply in held.replies:
            step = definition.steps[place.step]
            kind, good = step.reply(place.part, reply.event_type) or (None, False)
            if kind is not None and good and place.part is Part.DO:
                found[step.name] = read_event(self.registry, kind, reply)
        return found

    def _why(self, definition: Definition, held: Instance) -> Why:
        cause = held.progress.cause
        if cause is None:
            raise ValueError(f"saga {held.saga_id} was compensated without a cause")
        row = held.steps[Place(cause.step, Part.DO)]
        step = definition.steps[cause.step]
        known = None if row.reply is None else step.reply(Part.DO, row.reply.event_type)
        reply = None
        if known is not None and row.reply is not None:
            reply = read_event(self.registry, known[0], row.reply)
        return Why(step.name, cause.outcome, reply)

    def _wait(self, held: Instance) -> timedelta | None:
        """Return how long to wait for what a saga waits for; None for ever."""
        progress = held.progress
        place = progress.waits_for
        if place is None or progress.state is State.STUCK:
            return None
        step = self.definition_of(held).steps[place.step]
        return spread(step.wait(place.part, progress.tries), self.chance)


def spread(wait: timedelta | None, chance: random.Random) -> timedelta | None:
    """Return a time that is up to a tenth longer, so that many timers are due one after another."""
    if wait is None:
        return None
    return wait + min(wait * _SPREAD, _WIDEST) * chance.random()


async def _record(session: AsyncSession, held: Instance, made: object) -> UUID:
    """Record a message; its key is that of the start event, unless it names one itself."""
    key = held.start.key or str(held.saga_id)
    outbox = SqlAlchemyOutbox(session, held.tenant_id)
    if not isinstance(made, NewEvent):
        return await outbox.add(made, key=key)
    if made.key is None and made.aggregate_id is None:
        made.key = key
    return (await outbox.add_many([made]))[0]
