"""A read model that follows the outbox's log: batch by batch, each with its position."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.errors import HistoryIncomplete, HistoryUndecided, ReadModelError
from pillarbox.outbox.wakeup import Wakeup, wakeup_of
from pillarbox.readmodel.applying import (
    NOTHING,
    Applied,
    Applier,
    Apply,
    Batch,
    together,
)
from pillarbox.readmodel.careful import FEW, LONGEST, Careful, GivenUp
from pillarbox.readmodel.checkpoint import Checkpoints, Generation, State
from pillarbox.readmodel.definition import ReadModel
from pillarbox.readmodel.forgetting import Forgetting
from pillarbox.readmodel.held import HeldKey, HeldKeys, Line
from pillarbox.readmodel.history import (
    FIRST,
    Undecided,
    read_up_to,
    refuse_cut,
    refuse_hole,
    tell_missed,
)
from pillarbox.readmodel.log import Beginning, Entry, Log, LogBatch
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.position import Position

log = logging.getLogger("pillarbox.readmodel")

Done = TypeVar("Done")


class LogFollower:
    """Take a generation of a model through the log, a transaction at a time; the runner's hands."""

    def __init__(self, model: ReadModel, parts: Parts, state: State = "live") -> None:
        self.model, self.parts, self.state = model, parts, state
        self.checkpoints = Checkpoints(parts.schema)
        self.held = HeldKeys(parts.schema)
        self.log = Log(
            list(model.methods()), schema=parts.schema, source=parts.service, rules=parts.rules
        )
        self.forgetting = Forgetting(model.name, parts)
        self._undecided = Undecided()
        self._unbroken = False
        """Whether it has looked at the log since it last made sure of it, without being away."""
        self._read = 0
        """How many rows the transaction in hand has read."""
        self._suspect = 0
        """How many rows are left of a batch that failed: they are applied a few at a time."""

    @property
    def _is_whole(self) -> bool:
        return self.parts.config.history == "whole"

    async def turn(self) -> Batch:
        """Apply one batch and commit it; an event that fails is held with its key.

        Raise `DatabaseAway` when it is not known what became of it: the position tells.
        """
        began = time.monotonic()
        with self._noticing_absence():
            batch = await self._committed()
        self._unbroken = batch is not NOTHING
        self.forgetting.add(batch.touched)
        await self.forgetting.forget()
        if batch.read:
            took = timedelta(seconds=time.monotonic() - began)
            self.parts.observer.applied(batch.events, took)
        return batch

    async def step(
        self,
        session: AsyncSession,
        at: Generation,
        apply: Apply = together,
        most: int | None = None,
    ) -> Batch:
        """Apply one batch to a generation that this transaction has locked: together, or in a way."""
        most = most or self.parts.config.batch_size
        found = await self.log.read(session, at.position, most)
        self._read = len(found.entries)
        self.parts.observer.read(self._read)
        waiting = await self.held.of(session, at)
        entries = [entry for entry in found.entries if not _waits(entry, waiting)]
        applied = await apply(session, at, Applier(self.model, self.parts, at), entries)
        if applied.upto is not None:
            found = found.upto(applied.upto, at.position)
        await self._move(session, at, found, applied)
        fresh = sum(entry.seq > at.position.number for entry in found.entries)
        more = fresh >= most or found.cut is not None or applied.upto is not None
        now = self.parts.clock.now()
        due = any(key.due_at <= now for key in waiting.values())
        read = len(found.entries)
        return Batch(read, applied.events, applied.touched, more=more, due=due)

    async def _move(
        self, session: AsyncSession, at: Generation, found: LogBatch, applied: Applied
    ) -> None:
        """Move the position over the rows of a batch."""
        seqs = [entry.seq for entry in found.entries]
        position = at.position.moved(seqs, found.open, found.cut)
        if self._is_whole:
            for number in at.position.missed(seqs, found.open):
                _tell(tell_missed(at.name, number))
        if position != at.position:
            await self._write(session, at, position, applied)
            self.parts.observer.applying(applied.events)

    async def _write(
        self, session: AsyncSession, at: Generation, position: Position, applied: Applied
    ) -> None:
        events, touched = applied.events, applied.touched
        listed = self.forgetting.listed(at, position, events, touched)
        await self.checkpoints.move(session, at, position, events=events, touched=listed)

    async def locked(self, session: AsyncSession) -> Generation:
        """Return the generation, locked; a live one that is not there begins.

        Raise `ReadModelSourceChanged` if it comes from a subscription.
        """
        found = await self.checkpoints.find(session, self.model.name, self.state, lock=True)
        if found is None:
            return (await self._begun(session)).following("log")
        found.following("log")
        if not (found.paused or self._unbroken):
            return await self._tell_of_hole(session, found)
        return found

    async def _tell_of_hole(self, session: AsyncSession, at: Generation) -> Generation:
        """Say aloud that rows may be gone which a model has not read; it goes on with what there is.

        Numbers that were rolled back, or skipped by a server after a crash, look the same where
        nothing older is kept: a model that is well must not stand still for them. While nobody can
        know, the doubt is kept with the position: whoever finds it settled says so.
        """
        if not self._is_whole:
            return at
        beginning, number = await self.log.beginning(session), read_up_to(at) + 1
        position = at.position
        try:
            refuse_hole(at, beginning)
        except HistoryIncomplete as hole:
            _tell(hole)
            position = position.trusting(number)
        except HistoryUndecided:
            position = position.doubting(number, beginning.open)
        if position != at.position:
            touched = [list(row) for row in at.touched]
            await self.checkpoints.move(session, at, position, events=0, touched=touched)
        return replace(at, position=position)

    async def refuse_hole(self, session: AsyncSession, at: Generation) -> None:
        """Refuse to go on where rows are gone that a generation has not read."""
        if self._is_whole:
            beginning = await self.log.beginning(session)
            self._undecided.judge(
                read_up_to(at) + 1, beginning, lambda found: refuse_hole(at, found)
            )

    def refuse_cut(self, beginning: Beginning, first: int) -> None:
        """Refuse to begin where the log does not reach its first row."""
        if self._is_whole:
            name = self.model.name
            self._undecided.judge(first, beginning, lambda found: refuse_cut(name, found, first))

    async def _begun(self, session: AsyncSession) -> Generation:
        name, state = self.model.name, self.state
        await self.parts.refuse_blindness(session)
        beginning = await self.log.beginning(session)
        self.refuse_cut(beginning, FIRST)
        begun = Generation(
            name=name,
            generation=await self.checkpoints.next_generation(session, name),
            source="log",
            state=state,
            first_position=beginning.oldest or FIRST,
        )
        await self.checkpoints.begin(session, begun)
        found = await self.checkpoints.find(session, name, state, lock=True)
        if found is None:
            raise DatabaseAway(LookupError("the model's row went away"))
        return found

    async def release_due(self, now: datetime | None = None) -> bool:
        """Try keys again that are due, each in a transaction of its own, as long as there is time.

        Return whether there was none for some of them, or for all of a key.
        """
        now, left = now or self.parts.clock.now(), False
        latest = self.parts.clock.now() + LONGEST
        with self._noticing_absence():
            for number, line in enumerate(await self._due(now)):
                if number and self.parts.clock.now() >= latest:
                    left = True
                    break
                applied = await self._carefully(partial(self._released, line=line, now=now))
                left = left or applied.upto is not None
                self.forgetting.add(applied.touched)
        await self.forgetting.forget()
        return left

    async def _due(self, now: datetime) -> Sequence[Line]:
        """Return the keys that are due, those first that have waited the longest for it."""
        async with self.parts.transactions.begin(None) as session:
            at = await self.checkpoints.find(session, self.model.name, self.state)
            waiting = {} if at is None else await self.held.of(session, at)
        due = [key for key in waiting.values() if key.due_at <= now]
        return [key.line for key in sorted(due, key=lambda key: key.due_at)]

    async def _released(self, careful: Careful, *, line: Line, now: datetime) -> Applied:
        async with self.parts.transactions.begin(None) as session:
            at = await self.locked(session)
            self.forgetting.notice(at)
            key = None if at.paused else await self.held.find(session, at, line)
            if key is None or key.due_at > now:
                return Applied(0, set())
            applied = await careful.release(session, at, key, now)
            if applied.events:
                await self._write(session, at, at.position, applied)
        return applied

    @contextmanager
    def _noticing_absence(self) -> Iterator[None]:
        """Make sure of the log at the next look, if this one does not come to its end."""
        try:
            yield
        except Exception:
            self._unbroken = False
            raise

    async def _committed(self) -> Batch:
        """Apply one batch; what fails is done again a few rows at a time, each event in a savepoint."""
        if not self._suspect:
            self._read = 0
            try:
                return await self._transact(together)
            except (DatabaseAway, ReadModelError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a method or a write may raise
                # Nothing of it is committed.
                log.debug("batch_undone", extra={"error_class": type(error).__name__})
                self._suspect = self._read
        most = min(FEW, self.parts.config.batch_size)
        batch = await self._carefully(lambda careful: self._transact(careful.apply, most))
        self._suspect = max(self._suspect - batch.read, 0) if batch.more else 0
        return batch

    async def _carefully(self, act: Callable[[Careful], Awaitable[Done]]) -> Done:
        """Do a transaction again as often as a method spoils it; tell what it came to."""
        careful = Careful(self.model, self.parts, self.held, self.log)
        while True:
            try:
                done = await act(careful)
            except GivenUp as found:
                careful.note(found)
            except (DatabaseAway, ReadModelError):
                raise
            except Exception as error:
                if not careful.blame(error):
                    raise
            else:
                careful.tell()
                return done

    async def _transact(self, apply: Apply, most: int | None = None) -> Batch:
        async with self.parts.transactions.begin(None) as session:
            at = await self.locked(session)
            self.forgetting.notice(at)
            if at.paused:
                return NOTHING
            return await self.step(session, at, apply, most)


class LogRunner:
    """Run a read model that follows the log, in as many processes as you like.

    runner = LogRunner(RoutePlans(), Parts(session_factory))
    await runner.run_forever()
    """

    def __init__(self, model: ReadModel, parts: Parts) -> None:
        self.model, self.parts = model, parts
        self._follower = LogFollower(model, parts)
        self._stopped, self._woken = False, asyncio.Event()

    async def run_forever(self) -> None:
        """Apply what is committed until `stop`."""
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(self._hear())
            while not self._stopped:
                self._woken.clear()
                if not await self._look_safely() and not self._stopped:
                    await self._rest()
            hearing.cancel()

    async def _look_safely(self) -> bool:
        try:
            return await self.look()
        except DatabaseAway as error:
            log.warning("database_away", extra={"error": str(error)})
            self.parts.observer.database_away(error)
        except HistoryUndecided as error:
            log.info("history_undecided", extra={"error": str(error)})
        return False

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.parts.config.look_every):
                await self._woken.wait()

    async def look(self) -> bool:
        """Apply one batch and what was held; say whether there is more to do at once."""
        batch = await self._follower.turn()
        return await self._more(batch, self.parts.clock.now())

    async def drain(self) -> None:
        """Apply what there is and end: for tests and for jobs."""
        now, more = None, True
        while more:
            batch = await self._follower.turn()
            # A key that fails in here and is due again soon is not what there is.
            now = now or self.parts.clock.now()
            more = await self._more(batch, now)

    async def _more(self, batch: Batch, now: datetime) -> bool:
        left = batch.due and await self._follower.release_due(now)
        return batch.more or left

    def stop(self) -> None:
        """Finish the batch in hand and end."""
        self._stopped = True
        self._woken.set()

    async def _hear(self) -> None:
        """Wake up when this process commits; other processes are noticed by looking."""
        wakeup = _wakeup(self.parts.session_factory)
        if wakeup is None:
            return
        with wakeup.listen() as listener:
            while True:
                await listener.wait()
                self._woken.set()

    def __repr__(self) -> str:
        return f"<LogRunner {self.model.name}>"


def _tell(hole: HistoryIncomplete) -> None:
    log.error("history_incomplete", extra={"model": hole.model, "found": hole.found})


def _waits(entry: Entry, waiting: Mapping[tuple[str, str], HeldKey]) -> bool:
    held = waiting.get(entry.line)
    return held is not None and entry.seq >= held.seq


def _wakeup(factory: Any) -> Wakeup | None:
    bind = factory.kw.get("bind") if isinstance(factory, async_sessionmaker) else None
    return wakeup_of(bind) if isinstance(bind, AsyncEngine) else None
