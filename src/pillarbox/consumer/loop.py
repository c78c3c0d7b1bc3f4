"""The consumer's loop: receive, let the lanes work, see to what is due, until told to stop."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from pillarbox.bus.subscription import Delivery, Reception, Subscription, nothing_waits
from pillarbox.clock import SYSTEM_CLOCK, Clock
from pillarbox.consumer.applied import Stands
from pillarbox.consumer.attempts import Attempts
from pillarbox.consumer.batch import Books
from pillarbox.consumer.chores import Chore, Chores
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Task
from pillarbox.consumer.lane import InHand, in_hand, lane_of
from pillarbox.consumer.lane_runner import LaneRunner, Surroundings
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.parked import ParkedMessages
from pillarbox.consumer.returning import Returning
from pillarbox.consumer.routes import Ignored, Routes
from pillarbox.consumer.standing import Standing, standing_of
from pillarbox.consumer.tasks import StoredTasks
from pillarbox.consumer.telling import Listener, Telling
from pillarbox.consumer.tenants import Tenants
from pillarbox.consumer.transactions import DatabaseAway, SessionFactory, Transactions
from pillarbox.consumer.turnstile import Turnstile
from pillarbox.consumer.verdict import Rules
from pillarbox.consumer.work import Work
from pillarbox.event.ids import IdMaker, id_maker
from pillarbox.inbox.retention import retention_warning
from pillarbox.retry import RetryPolicy

log = logging.getLogger("pillarbox.consumer")

_LEAVING: Final = 5.0

Ending = Callable[[], Awaitable[bool]]
"""Say whether to end, where a broker gave nothing and nothing is in hand."""


class ConsumerLoop:
    """One run of a consumer, from joining its group to leaving it.

        loop = ConsumerLoop("payments", routes, subscription, session_factory, ConsumerConfig())
        await loop.run_forever()

    `stop()` ends it: nothing new is begun, transactions that run end within `stop_timeout` or are
    rolled back, what is unfinished is given back to the broker. A second `stop()` does not wait.
    """

    def __init__(
        self,
        name: str,
        routes: Routes,
        subscription: Subscription,
        session_factory: SessionFactory,
        config: ConsumerConfig,
        *,
        tasks: Mapping[str, Task] | None = None,
        chores: Sequence[Chore] = (),
        listener: Listener | None = None,
        observer: Observer | None = None,
        clock: Clock = SYSTEM_CLOCK,
        now: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        schema: str | None = None,
        new_id: IdMaker | None = None,
    ) -> None:
        self._routes, self._subscription, self._config = routes, subscription, config
        self._observer, self._now = observer or Observer(), now
        chance = chance or random.Random()  # noqa: S311 - jitter needs no secret
        transactions = Transactions(session_factory, schema, limit=config.database_timeout)
        new_id = new_id or id_maker()
        self._books = Books(
            name,
            transactions,
            ParkedMessages(name, new_id, schema),
            Attempts(name, config.max_crashes, schema),
            Stands(name, schema),
            Tenants(name, transactions),
            config,
            clock,
            new_id,
            asyncio.Event(),
        )
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        work = Work(self._books, self._observer, now)
        self._around = Surroundings(
            books=self._books,
            work=work,
            subscription=subscription,
            turnstile=Turnstile(),
            observer=self._observer,
            rules=Rules(
                RetryPolicy(config.max_attempts, config.retry_delay, config.retry_delay_max),
                config.hold_limit,
            ),
            chance=chance,
            now=now,
            stopping=self._stopping,
            settled=asyncio.Event(),
            moved=asyncio.Event(),
            crowded=self._is_crowded,
        )
        self._chores = Chores(
            self._around,
            Returning(self._books, routes, work, self._observer, chance),
            StoredTasks(self._books, tasks or {}, self._observer, chance),
            chores,
        )
        self._runners = [LaneRunner(self._around) for _ in range(config.lanes)]
        self._telling = Telling(self._around, self.standing, listener)
        self._arrived, self._ignored, self._busy_at = 0, 0, 0.0

    def stop(self) -> None:
        """Begin nothing new; a second call does not wait for what has begun."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        for event in (self._around.settled, self._around.moved, self._books.tasks_stored):
            event.set()
        for runner in self._runners:
            runner.wake.set()

    def standing(self) -> Standing:
        """Return how this member stands, without its broker's word."""
        items = [item for runner in self._runners for item in runner.lane]
        finished = self._ignored + sum(runner.finished for runner in self._runners)
        return standing_of(items, [runner.newest for runner in self._runners], finished)

    async def run_forever(self) -> None:
        """Consume until stopped."""
        await self._run(None)

    async def drain(self) -> None:
        """Consume until nothing is left to do now; what waits for a later time is left."""

        async def at_once() -> bool:
            return True

        await self._run(at_once)

    async def catch_up(self, patience: timedelta) -> bool:
        """Consume until the broker says that nothing waits; tell whether it did.

        A silent broker may be away, or may not have shared its partitions yet: it is waited for as long
        as the patience lasts.
        """
        caught_up = False

        async def when_nothing_waits() -> bool:
            nonlocal caught_up
            caught_up = await nothing_waits(self._subscription)
            silence = self._now() - self._busy_at
            return caught_up or silence >= patience.total_seconds()

        self._busy_at = self._now()
        await self._run(when_nothing_waits)
        return caught_up

    async def _run(self, ending: Ending | None) -> None:
        """Join, work, leave; a drain that nobody stopped may be followed by another."""
        try:
            for weakness in await self._subscription.start(self._revoked):
                log.warning("subscription_weakness", extra={"weakness": weakness})
            self._check(self._subscription.reception)
            async with asyncio.TaskGroup() as group:
                working = [
                    *(
                        group.create_task(r.run(group), name="pillarbox-lane")
                        for r in self._runners
                    ),
                    *(
                        group.create_task(chore, name="pillarbox-chore")
                        for chore in (*self._chores.all(), self._telling.for_ever())
                    ),
                ]
                receiving = group.create_task(self._receive(ending), name="pillarbox-receive")
                await self._until_told(receiving)
                drained = not self._stopping.is_set()
                await self._finish(working)
            await self._give_back()
            if drained:
                self._stopping.clear()
        finally:
            await self._subscription.close()

    def _check(self, reception: Reception) -> None:
        """Refuse settings that cannot work with this broker; tell of an inbox that forgets early."""
        self._config.check_against(reception.hand_back_limit)
        longest = reception.longest_redelivery
        retention = timedelta(days=self._config.retention_days)
        if warning := retention_warning(self._books.consumer, retention, longest):
            # Where redelivery never ends no retention is long enough: nothing to be done about it.
            level = logging.INFO if longest is None else logging.WARNING
            log.log(level, "inbox_forgets_early", extra={"warning": warning})

    async def _until_told(self, receiving: asyncio.Task[None]) -> None:
        """Wait for a stop, or for the end of a drain; a cancelled receive loses nothing."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({receiving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            receiving.cancel()
        await asyncio.wait({receiving})

    async def _finish(self, working: Collection[asyncio.Task[None]]) -> None:
        """Let what has begun come to its end, within the limit; roll back the rest."""
        if not self._stopping.is_set():
            self.stop()
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            async with asyncio.timeout(self._config.stop_timeout):
                left = set(working)
                while left and not self._hurry.is_set():
                    done, _ = await asyncio.wait(
                        {*left, hurry}, return_when=asyncio.FIRST_COMPLETED
                    )
                    left -= done
        except TimeoutError:
            log.warning("stopped_with_work_in_hand", extra={"seconds": self._config.stop_timeout})
        finally:
            hurry.cancel()
        for runner in self._runners:
            await runner.let_go(0.0)
        for task in working:
            task.cancel()

    # Receiving

    async def _receive(self, ending: Ending | None) -> None:
        while True:
            room = self._config.window - sum(len(runner.lane) for runner in self._runners)
            if room <= 0:
                self._around.settled.clear()
                await self._around.settled.wait()
                continue
            deliveries = await self._subscription.receive(room)
            if deliveries:
                await self._take_in(deliveries)
            if deliveries or not self._is_idle():
                self._busy_at = self._now()
            elif ending is not None and not await self._chores.sweep() and await ending():
                await self._telling.tell()
                return

    async def _take_in(self, deliveries: Sequence[Delivery]) -> None:
        self._observer.received(len(deliveries))
        ignored, now = [], self._books.clock.now()
        for delivery in deliveries:
            content = self._routes.prepare(delivery.message)
            if isinstance(content, Ignored):
                ignored.append(delivery)
                continue
            self._arrived += 1
            item = in_hand(delivery, content, self._arrived)
            item.came_at = now
            runner = self._runners[lane_of(item.line, len(self._runners))]
            runner.lane.put(item)
            runner.wake.set()
        if ignored:
            await self._subscription.acknowledge(ignored)
            self._ignored += len(ignored)
            self._observer.ended("ignored", len(ignored))

    def _is_crowded(self) -> bool:
        """Tell whether lines that wait have more than half of the window."""
        return 2 * sum(runner.lane.held for runner in self._runners) > self._config.window

    def _is_idle(self) -> bool:
        return not any(len(runner.lane) for runner in self._runners)

    # Giving up

    async def _revoked(self, partitions: Collection[str]) -> None:
        """Be done with partitions: their transactions end within a limit, or are rolled back."""
        gone = frozenset(partitions)
        lost = [item for runner in self._runners for item in runner.lane.lose(gone)]
        limit = min(self._config.stop_timeout, self._config.hold_limit)
        async with asyncio.TaskGroup() as group:
            for runner in self._runners:
                if any(item.lost for item in runner.lane.at_work):
                    group.create_task(runner.let_go(limit))
        self._observer.revoked(len(lost))
        log.info("partitions_revoked", extra={"partitions": sorted(gone), "messages": len(lost)})
        await self._unmark(lost)
        self._around.settled.set()

    async def _give_back(self) -> None:
        """Hand unfinished messages to whoever comes next, in the order in which they came."""
        with suppress(DatabaseAway, TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._chores.give_back()
        items = sorted((item for runner in self._runners for item in runner.lane), key=_by_arrival)
        if items:
            log.info("messages_given_back", extra={"messages": len(items)})
            await self._unmark(items)
            await self._subscription.give_back([item.delivery for item in items])

    async def _unmark(self, items: Collection[InHand]) -> None:
        """Say that this process did not die over messages which it no longer has."""
        by_tenant: dict[str, list[InHand]] = {}
        for item in items:
            if item.marked:
                by_tenant.setdefault(item.tenant_id, []).append(item)
        with suppress(DatabaseAway, TimeoutError):
            async with asyncio.timeout(_LEAVING):
                for tenant_id, marked in by_tenant.items():
                    async with self._books.transactions.begin(tenant_id) as session:
                        await self._books.attempts.unmark(session, marked)


def _by_arrival(item: InHand) -> int:
    return item.arrival
