"""What a consumer does beside its lanes: waiting messages, stored tasks, old records, the lag."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import Any, Final, Protocol

from pillarbox.consumer.batch import Books
from pillarbox.consumer.forgetting import Forgetting
from pillarbox.consumer.lane_runner import PAUSE, Surroundings
from pillarbox.consumer.returning import Returning, Taken
from pillarbox.consumer.tasks import StoredTasks
from pillarbox.consumer.tenants import RECORDS
from pillarbox.consumer.transactions import DatabaseAway

log = logging.getLogger("pillarbox.consumer")

_LAG_EVERY: Final = 5.0


class Chore(Protocol):
    """Something more that a consumer looks after beside its messages, as sagas have timers."""

    async def look(self, books: Books, tenant_id: str | None) -> bool:
        """Do some of what is due for a tenant, or for all, and commit it; False when nothing was.

        Several may look at once, here and elsewhere. Only `DatabaseAway` may be raised.
        """
        ...


class Slots:
    """Let so many work at once, count what they did, and know when none of them works."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._inside = 0
        self.done = 0
        self.empty = asyncio.Event()
        self.empty.set()

    async def take(self) -> None:
        """Wait for a place."""
        await self._free.acquire()
        self._inside += 1
        self.empty.clear()

    def free(self, *, did: bool) -> None:
        """Give a place back; `did` says that something came of it."""
        self._free.release()
        self._inside -= 1
        self.done += did
        if not self._inside:
            self.empty.set()


class Chores:
    """Look again and again, until told to stop."""

    def __init__(
        self,
        around: Surroundings,
        returning: Returning,
        tasks: StoredTasks,
        more: Sequence[Chore] = (),
    ) -> None:
        self._around, self._returning, self._tasks = around, returning, tasks
        self._more = more
        self._forgetting = Forgetting(around.books)
        # A drain asks whether anything is left: it must not miss what a chore has in hand.
        self._doing_tasks = asyncio.Lock()
        self._slots = self._new_slots()
        self._looking = {chore: asyncio.Lock() for chore in more}

    def all(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the chores, each to be run as a task."""
        moved, stored = self._around.moved, self._around.books.tasks_stored
        return [
            self._bring_back_for_ever(moved),
            self._look_for_ever(self.do_tasks, stored),
            *(self._look_after_for_ever(chore) for chore in self._more),
            self._forget_for_ever(),
            self._tell_lag_for_ever(),
        ]

    async def sweep(self) -> bool:
        """Do all that is due now; say whether anything came of it."""
        found = [await self.look_after(chore) for chore in self._more]
        return await self.bring_back() | await self.do_tasks() | any(found)

    async def bring_back(self) -> bool:
        """Bring back every message that is due, and wait for those that come back already.

        Say whether there was one.
        """
        before = self._slots.done
        away: DatabaseAway | None = None
        async with asyncio.TaskGroup() as group:
            try:
                await self._begin_due(group)
            except DatabaseAway as error:
                away = error  # what has begun comes to its end
        await self._slots.empty.wait()
        if away is not None:
            raise away
        return self._slots.done != before

    async def give_back(self) -> None:
        """Let go of messages that were coming back when the consumer was stopped."""
        await self._returning.leave()
        self._slots = self._new_slots()  # a task that was cancelled before it began gave none back

    def _new_slots(self) -> Slots:
        return Slots(max(2, self._around.books.config.lanes // 2))

    async def do_tasks(self) -> bool:
        """Do every task that is due now, once; say whether one was done.

        One that fails waits for a later time, however soon: else it would be all that is done.
        """
        done = False
        async with self._doing_tasks:
            due_by = self._around.books.clock.now()
            for tenant_id in await self._around.books.tenants.to_ask():
                ended: bool | None = True
                while ended is not None and not self._around.stopping.is_set():
                    ended = await self._do_one_task(tenant_id, due_by)
                    done = done or bool(ended)
        return done

    async def look_after(self, chore: Chore) -> bool:
        """Do all that is due of one more chore, with a rest after each batch."""
        around, found = self._around, False
        async with self._looking[chore]:
            for tenant_id in await around.books.tenants.to_ask(RECORDS):
                while not around.stopping.is_set():
                    began = around.now()
                    async with around.turnstile.beside_others():
                        more = await chore.look(around.books, tenant_id)
                    if not more:
                        break
                    found = True
                    # As long as the batch took: half of the database's time is left to others.
                    await _within(around.stopping, around.now() - began)
        return found

    async def forget(self) -> None:
        """Remove all that is too old, a batch at a time, with a rest after each."""
        around, total = self._around, 0
        for tenant_id in await around.books.tenants.to_ask(RECORDS):
            more = True
            while more and not around.stopping.is_set():
                began = around.now()
                found = await self._forgetting.batch(tenant_id)
                around.observer.forgotten(found.records)
                total, more = total + found.records, found.more
                if more:
                    # As long as the batch took: half of the database's time is left to others.
                    await _within(around.stopping, around.now() - began)
        if total:
            log.info("inbox_cleaned", extra={"records": total})

    async def _bring_back_for_ever(self, woken: asyncio.Event) -> None:
        """Begin what is due, several keys side by side: a slow one does not keep the others."""
        around = self._around
        async with asyncio.TaskGroup() as group:
            while not around.stopping.is_set():
                woken.clear()
                try:
                    await self._begin_due(group)
                except DatabaseAway as error:
                    self._away(error)
                    await _within(around.stopping, PAUSE)
                    continue
                await _within(woken, around.books.config.look_every)

    async def _begin_due(self, group: asyncio.TaskGroup) -> None:
        """Take key after key that is due, and have each brought back by a task."""
        around = self._around
        for tenant_id in await around.books.tenants.to_ask():
            while not around.stopping.is_set() and await self._begin_one(group, tenant_id):
                pass

    async def _begin_one(self, group: asyncio.TaskGroup, tenant_id: str | None) -> bool:
        await self._slots.take()
        taken: Taken | None = None
        async with AsyncExitStack() as gate:
            try:
                if self._around.stopping.is_set():
                    return False
                await gate.enter_async_context(self._around.turnstile.beside_others())
                taken = await self._returning.take(tenant_id)
            finally:
                if taken is None or not taken.pairs:
                    self._slots.free(did=taken is not None)
            if taken is not None and taken.pairs:
                # What is marked is brought back at once: while it waited at the gate its time would
                # run out, and this process pass for one that died.
                inside = AsyncExitStack() if taken.alone else gate.pop_all()
                group.create_task(self._return(taken, inside), name="pillarbox-return")
        return taken is not None

    async def _return(self, taken: Taken, inside: AsyncExitStack) -> None:
        """Bring messages of a key back; the next of it may be due when they are done."""
        around = self._around
        try:
            async with inside:
                if taken.alone:
                    await inside.enter_async_context(around.turnstile.alone())
                await self._returning.bring_back(taken)
        except DatabaseAway as error:
            self._away(error)
            await _within(around.stopping, PAUSE)
        finally:
            self._slots.free(did=True)
            around.moved.set()

    async def _do_one_task(self, tenant_id: str | None, due_by: datetime) -> bool | None:
        async with self._around.turnstile.for_long():
            return await self._tasks.look(tenant_id, due_by)

    async def _look_for_ever(
        self, chore: Callable[[], Awaitable[bool]], woken: asyncio.Event
    ) -> None:
        around = self._around
        while not around.stopping.is_set():
            woken.clear()
            try:
                await chore()
            except DatabaseAway as error:
                self._away(error)
                await _within(around.stopping, PAUSE)
                continue
            await _within(woken, around.books.config.look_every)

    async def _look_after_for_ever(self, chore: Chore) -> None:
        around = self._around
        while not around.stopping.is_set():
            try:
                await self.look_after(chore)
            except DatabaseAway as error:
                self._away(error)
            # Spread, so that processes which started together do not all look at once.
            pause = around.books.config.look_every * around.chance.uniform(0.5, 1.0)
            await _within(around.stopping, pause)

    async def _forget_for_ever(self) -> None:
        around = self._around
        while True:
            # Spread, so that processes which started together do not all look at once.
            pause = around.books.config.cleanup_every * around.chance.uniform(0.5, 1.5)
            await _within(around.stopping, pause)
            if around.stopping.is_set():
                return
            try:
                await self.forget()
            except DatabaseAway as error:
                self._away(error)
            except Exception as error:  # noqa: BLE001 - messages matter more: it is tried again
                name = type(error).__name__
                log.warning("inbox_not_cleaned", extra={"error_class": name, "error": str(error)})

    def _away(self, error: DatabaseAway) -> None:
        log.warning("database_away", extra={"error": str(error)})
        self._around.observer.database_away(error)

    async def _tell_lag_for_ever(self) -> None:
        around = self._around
        while not around.stopping.is_set():
            lag = await around.subscription.lag()
            if lag is not None:
                around.observer.lagging(lag)
            await _within(around.stopping, _LAG_EVERY)


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
