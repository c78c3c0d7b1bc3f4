"""The projector's loop: claim, publish and settle at the same time, until told to stop.

It only performs what `Work` decides. One task claims, one settles, one keeps the leases (`Tenure`),
some do the chores (`Chores`); each publish call is a task of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import Accepted, PublishOutcome
from pillarbox.event.ids import IdMaker
from pillarbox.outbox.wakeup import Wakeup
from pillarbox.projector.chores import Chores
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.observer import Observer
from pillarbox.projector.order import OrderWatch
from pillarbox.projector.store import (
    Claimed,
    ClaimRequest,
    Failure,
    OutboxEvent,
    Settlement,
    Store,
    StoreUnavailable,
)
from pillarbox.projector.tenure import Tenure
from pillarbox.projector.throttle import Throttle
from pillarbox.projector.work import Batch, Work

log = logging.getLogger("pillarbox.projector")

DeadHook = Callable[[OutboxEvent, Failure], Awaitable[None]]

_TRY_AGAIN: Final = 0.05
# The shortest time between two claims that find little: it gathers what comes in quick succession.
_GATHER: Final = 0.002
# While a tenant without a backlog has news beside one with a backlog, work goes in smaller steps, so
# that the news does not wait behind thousands of others.
_SMALL_STEPS: Final = 16
_MIXED_FOR: Final = 1.0
_PAUSE_AFTER_ERROR: Final = 0.5


class Loop:
    """One run of a projector, from joining to leaving."""

    def __init__(
        self,
        *,
        store: Store,
        bus: MessageBus,
        config: OutboxProjectorConfig,
        work: Work,
        observer: Observer,
        new_id: IdMaker,
        shards: int,
        dead_hook: DeadHook | None,
        wakeup: Wakeup | None,
    ) -> None:
        self._store, self._bus, self._config = store, bus, config
        self._work, self._observer, self._new_id = work, observer, new_id
        self._shards, self._dead_hook, self._wakeup = shards, dead_hook, wakeup
        self._publishing = 0
        self._mixed_until = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._group: asyncio.TaskGroup | None = None
        self._wake, self._room, self._outcomes, self._idle = (asyncio.Event() for _ in range(4))
        self._stopping, self._hurry, self._renew = (asyncio.Event() for _ in range(3))
        self._calls: set[asyncio.Task[None]] = set()
        self._now = asyncio.get_running_loop().time
        self._throttle, self._order = Throttle(), OrderWatch()
        self._tenure = Tenure(store, work, observer, shards, config.lease, self._now)
        self._chores = Chores(
            store,
            work,
            self._throttle,
            self._tenure,
            self._wake,
            config.sleep_idle,
            self._now,
            self._poll_failed,
        )
        self.settled_events = 0

    def stop(self) -> None:
        """Claim no more; `run` returns when what is in hand is settled, or the limit is over.

        A second call ends the wait.
        """
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        for event in (self._wake, self._room, self._idle):
            event.set()

    async def run(self, *, drain: bool = False, claims: int | None = None) -> None:
        """Work until stopped; with `drain` until nothing is left, with `claims` for so many."""
        await self._tenure.keep()
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks = [
                group.create_task(self._settle_for_ever(), name="pillarbox-settle"),
                group.create_task(self._keep_for_ever(), name="pillarbox-keep"),
                group.create_task(self._chores.look_for_ever(), name="pillarbox-look"),
                group.create_task(self._chores.listen_for_ever(), name="pillarbox-listen"),
            ]
            if self._wakeup is not None:
                hearing = self._chores.hear_for_ever(self._wakeup)
                tasks.append(group.create_task(hearing, name="pillarbox-hear"))
            claiming = group.create_task(
                self._claim_until_stopped(drain=drain, claims=claims), name="pillarbox-claim"
            )
            await self._finish(claiming)
            for task in tasks:
                task.cancel()
        self._group = None

    async def _finish(self, claiming: asyncio.Task[None]) -> None:
        """Wait for the end of claiming, then for the hand to be empty, within the limit."""
        await claiming
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.stop_timeout):
                while (self._work.hand or self._work.to_settle) and not self._hurry.is_set():
                    self._idle.clear()
                    await self._idle.wait()
        if left := len(self._work.hand):
            log.warning("stopped_with_events_in_hand", extra={"events": left})
            self._work.drop(frozenset(range(self._shards)))
        for call in self._calls:
            call.cancel()

    # Claiming

    async def _claim_until_stopped(self, *, drain: bool, claims: int | None) -> None:
        found_at = self._now()
        while not self._stopping.is_set() and claims != 0:
            limit = self._limit()
            if not limit:
                await self._wait_for_room()
                continue
            claimed = await self._claim(limit)
            if claimed is None:
                await self._pause()
                continue
            claims = None if claims is None else claims - 1
            if claimed.events:
                found_at = self._now()
            if claimed.more or len(claimed.events) >= limit // 2 > 0:
                continue
            if drain and not claimed.events and await self._nothing_left():
                return
            await self._rest(found_at, drain=drain)

    def _limit(self) -> int:
        """Return how many events to claim now; none while they could not be sent."""
        now = self._now()
        if not self._tenure.valid or self._throttle.everything(now):
            return 0
        part = _SMALL_STEPS if now < self._mixed_until else 1
        limit = self._work.room(self._config.events_in_hand, now, part)
        if not limit and self._work.topics:
            self._work.spill()
            self._outcomes.set()
        return limit

    async def _claim(self, limit: int) -> Claimed | None:
        self._observer.claiming()
        try:
            with self._tenure.claiming() as epochs:
                return await self._claim_for(epochs, limit)
        except StoreUnavailable as error:
            self._poll_failed("claim_failed", error)
            return None

    async def _claim_for(self, epochs: dict[int, int], limit: int) -> Claimed:
        work, now = self._work, self._now()
        request = ClaimRequest(
            claim_id=self._new_id(),
            epochs=epochs,
            limit=limit,
            in_hand=work.hand.seqs,
            passed_over=self._throttle.passed_over(now),
        )
        work.asking()
        claimed = await self._store.claim(request)
        if not claimed.held:
            self._renew.set()
        if claimed.mixed:
            self._mixed_until = self._now() + _MIXED_FOR
        events = self._tenure.still_owned(claimed.events, epochs)
        work.shut = self._throttle.shut_topics(now)
        for event in self._order.broken(events):
            log.error("order_broken", extra={"event_id": event.event_id, "tenant": event.lane[0]})
            self._observer.order_broken(*event.lane)
        work.claimed(request.claim_id, events, epochs)
        self._throttle.spend(events)
        self._observer.claimed(len(events), timedelta(seconds=self._now() - now))
        if work.to_settle:
            self._outcomes.set()
        self._send()
        return claimed

    async def _wait_for_room(self) -> None:
        self._room.clear()
        await self._within(self._room, self._config.sleep_busy)

    async def _rest(self, found_at: float, *, drain: bool) -> None:
        """Wait for a wake-up, not longer than the settings say."""
        lately = self._now() - found_at < self._config.sleep_idle
        await asyncio.sleep(_GATHER)
        limit = self._config.sleep_busy if lately or drain else self._config.sleep_idle
        await self._within(self._wake, limit)
        self._wake.clear()

    async def _nothing_left(self) -> bool:
        """Tell whether what was claimed is settled; it may have brought back other events."""
        if self._work.hand or self._work.to_settle:
            await self._wait_for_room()
            return False
        return True

    async def _within(self, event: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    # Publishing

    def _send(self) -> None:
        """Hand over what may go; each call is a task."""
        now = self._now()
        if self._group is None or not self._tenure.valid:
            return
        while self._publishing < self._config.batches_in_hand:
            batch = self._work.next_batch(now)
            if batch is None:
                break
            self._publishing += 1
            call = self._group.create_task(self._publish(batch), name="pillarbox-publish")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        if self._work.rests and not self._publishing and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_TRY_AGAIN, self._send_again)

    def _send_again(self) -> None:
        self._retry = None
        self._send()

    async def _publish(self, batch: Batch) -> None:
        topics = [event.topic for event in batch.events]
        self._observer.sending(topics)
        began = self._now()
        try:
            outcomes = await self._bus.publish(
                [event.envelope for event in batch.events], one_by_one=batch.one_by_one
            )
        finally:
            self._publishing -= 1
        took = self._now() - began
        self._observer.answered(topics, outcomes, timedelta(seconds=took))
        self._tell_latency(batch.events, outcomes, took)
        self._work.answered(batch, outcomes, self._now())
        self._outcomes.set()
        if self._work.bus.closed:
            self._room.set()
        self._send()

    def _tell_latency(
        self, events: Sequence[OutboxEvent], outcomes: Sequence[PublishOutcome], took: float
    ) -> None:
        oldest: dict[str, float] = {}
        for event, outcome in zip(events, outcomes, strict=True):
            # A batch goes by number, so the first event of a tenant is its oldest.
            if event.lane[0] not in oldest and type(outcome) is Accepted:
                oldest[event.lane[0]] = event.age
        for tenant_id, age in oldest.items():
            self._observer.delivered(tenant_id, timedelta(seconds=age + took))

    # Settling

    async def _settle_for_ever(self) -> None:
        while True:
            await self._outcomes.wait()
            self._outcomes.clear()
            if self._work.to_settle:
                settlement, epochs = self._work.take_settlement()
                await self._tell_of_the_dead(settlement)
                await self._settle(settlement, epochs)

    async def _settle(self, settlement: Settlement, epochs: dict[int, int]) -> None:
        """Write a settlement, however long the database is away."""
        self._observer.settling(len(settlement.sent))
        began = self._now()
        while True:
            try:
                result = await self._store.settle(settlement, epochs)
                break
            except StoreUnavailable as error:
                self._poll_failed("settle_failed", error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR)
        if result.lost:
            self._observer.fenced(len(result.lost))
            self._renew.set()
        sent = [event for event in settlement.sent if event.shard not in result.lost]
        self._store.read_again(self._work.settled(settlement, result))
        self.settled_events += len(sent)
        self._observer.settled(
            sent=len(sent),
            failed=len(settlement.failed),
            dead=len(settlement.dead),
            took=timedelta(seconds=self._now() - began),
        )
        if result.again or settlement.troubled:
            self._wake.set()
        self._room.set()
        self._idle.set()
        self._send()

    async def _keep_for_ever(self) -> None:
        interval = min(self._config.lease / 3, 2.0)
        while True:
            await self._within(self._renew, interval)
            self._renew.clear()
            try:
                await self._tenure.keep()
            except StoreUnavailable as error:
                self._poll_failed("renewal_failed", error)
            if self._tenure.lapse():
                self._order.forget()
            self._room.set()
            self._idle.set()

    async def _tell_of_the_dead(self, settlement: Settlement) -> None:
        """Call the hook before the event is marked, so that a crash repeats the call."""
        for event, failure in settlement.dead:
            log.error(
                "event_dead",
                extra={
                    "event_id": event.event_id,
                    "tenant": event.lane[0],
                    "topic": event.topic,
                    "attempt": event.attempts + 1,
                    "error_class": failure.code,
                },
            )
            if self._dead_hook is not None:
                try:
                    await self._dead_hook(event, failure)
                except Exception:
                    log.exception("dead_hook_failed", extra={"event_id": event.event_id})

    def _poll_failed(self, what: str, error: StoreUnavailable) -> None:
        log.warning(what, extra={"error": str(error)})
        self._observer.poll_failed(error)

    async def _pause(self) -> None:
        await self._within(self._stopping, _PAUSE_AFTER_ERROR)
