"""The projector's loop: claim, publish and settle at the same time, until told to stop.

It only performs what `Work` decides. One task claims, one settles (`Settler`), one keeps the leases
(`Tenure`), some do the chores (`Chores`); each publish call is a task of its own.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from pillarbox.bus.message_bus import MessageBus
from pillarbox.event.ids import IdMaker
from pillarbox.outbox.wakeup import Wakeup
from pillarbox.projector.chores import Chores
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.mixture import CALLS, SMALL_STEPS, Call, Mixture, next_call
from pillarbox.projector.observer import Observer
from pillarbox.projector.order import OrderWatch
from pillarbox.projector.publishing import outcomes_of
from pillarbox.projector.ready import Batch
from pillarbox.projector.settler import DeadHook, Settler
from pillarbox.projector.signals import Signals, within
from pillarbox.projector.store import Claimed, ClaimRequest, OutboxEvent, Store, StoreUnavailable
from pillarbox.projector.tenure import Tenure
from pillarbox.projector.throttle import Throttle
from pillarbox.projector.work import Work

log = logging.getLogger("pillarbox.projector")

_TRY_AGAIN: Final = 0.05
# The shortest time between two claims that find little: it gathers what comes in quick succession.
_GATHER: Final = 0.001
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
        self._shards, self._wakeup = shards, wakeup
        self._publishing = self._hurrying = 0
        self._mixture = Mixture()
        self._retry: asyncio.TimerHandle | None = None
        self._group: asyncio.TaskGroup | None = None
        self._signals = Signals()
        self._calls: set[asyncio.Task[None]] = set()
        self._now = asyncio.get_running_loop().time
        self._turned_at = self._now()
        self._throttle, self._order = Throttle(), OrderWatch()
        self._tenure = Tenure(store, work, observer, shards, config.lease, self._now)
        self._chores = Chores(
            store,
            work,
            self._throttle,
            self._tenure,
            self._woken,
            config.sleep_idle,
            self._now,
            self._poll_failed,
        )
        self._settler = Settler(
            store,
            work,
            observer,
            self._signals,
            dead_hook,
            self._now,
            self._send,
            self._poll_failed,
        )

    @property
    def settled_events(self) -> int:
        """How many events were settled as sent."""
        return self._settler.settled_events

    @property
    def turned_ago(self) -> timedelta:
        """How long ago it last looked for something to claim, or began to settle and has not ended."""
        return timedelta(seconds=self._now() - min(self._turned_at, self._settler.busy_since))

    def stop(self) -> None:
        """Claim no more; `run` returns when what is in hand is settled, or the limit is over.

        A second call ends the wait.
        """
        signals = self._signals
        if signals.stopping.is_set():
            signals.hurry.set()
        for event in (signals.stopping, signals.wake, signals.room, signals.idle):
            event.set()

    async def run(self, *, drain: bool = False, claims: int | None = None) -> None:
        """Work until stopped; with `drain` until nothing is left, with `claims` for so many."""
        self._settler.gathers = not drain and claims is None
        await self._tenure.keep()
        await self._chores.obey()
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks = [
                group.create_task(self._settler.settle_for_ever(), name="pillarbox-settle"),
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
        await self._last_claim(claiming)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.stop_timeout):
                while self._in_hand and not self._signals.hurry.is_set():
                    self._signals.idle.clear()
                    await self._signals.idle.wait()
        if left := len(self._work.hand):
            log.warning("stopped_with_events_in_hand", extra={"events": left})
            self._work.drop(frozenset(range(self._shards)))
        for call in self._calls:
            call.cancel()

    async def _last_claim(self, claiming: asyncio.Task[None]) -> None:
        """Wait for the end of claiming; a second stop gives up a claim that hangs."""
        hurry = asyncio.ensure_future(self._signals.hurry.wait())
        try:
            await asyncio.wait({claiming, hurry}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
        if not claiming.done():
            await self._store.close()
            claiming.cancel()
            await asyncio.wait({claiming})
        if not claiming.cancelled():
            claiming.result()

    @property
    def _in_hand(self) -> bool:
        return bool(self._work.hand) or self._work.to_settle

    # Claiming

    async def _claim_until_stopped(self, *, drain: bool, claims: int | None) -> None:
        found_at, news = self._now(), False
        while not self._signals.stopping.is_set() and claims != 0:
            self._turned_at = self._now()
            # In turns with the others, or news without end would leave no room for them.
            news = not news and self._hears_news()
            if not news and (rest := self._mixture.rest(self._now())) > 0:
                await self._wait_for_news(rest)
                continue
            limit = self._limit(news=news)
            if not limit:
                if drain and self._throttle.stopped and not self._in_hand:
                    return
                await self._wait_for_room()
                continue
            claimed = await self._claim(limit, news=news)
            if claimed is None:
                await self._pause()
                continue
            # One that looks for news alone, or has to read differently, is none.
            if claims is not None and (claimed.events or not (news or claimed.more)):
                claims -= 1
            if claimed.events:
                found_at = self._now()
            if news or claimed.more or len(claimed.events) >= limit // 2 > 0:
                continue
            if drain and claimed.held and not claimed.events and await self._nothing_left():
                return
            await self._rest(found_at, drain=drain)

    def _hears_news(self) -> bool:
        """Tell whether something may have come to a tenant without a backlog, beside others."""
        mixture = self._mixture
        return mixture.behind and self._signals.wake.is_set() and mixture.news_in(self._now()) <= 0

    def _woken(self) -> None:
        self._signals.wake.set()
        if self._mixture.behind:
            self._signals.room.set()  # news needs none: whoever waits for room claims it

    async def _wait_for_news(self, seconds: float) -> None:
        """Wait for a wake-up, not longer than this; one that has come may have to wait, too."""
        if self._signals.wake.is_set():
            await within(self._signals.stopping, min(seconds, self._mixture.news_in(self._now())))
        else:
            await within(self._signals.wake, seconds)

    def _limit(self, *, news: bool) -> int:
        """Return how many events to claim now; none while they could not be sent."""
        now = self._now()
        if not self._tenure.valid or self._throttle.everything(now):
            return 0
        most = self._config.events_in_hand
        if news:
            return self._work.room(most + self._config.batch_size, now)
        limit = self._work.room(most, now, SMALL_STEPS if self._mixture.mixed(now) else 1)
        if not limit and self._work.topics:
            self._work.spill(self._work.topics)
            self._signals.outcomes.set()
        return limit

    async def _claim(self, limit: int, *, news: bool) -> Claimed | None:
        self._observer.claiming()
        self._signals.wake.clear()  # a claim finds whatever was told before it
        try:
            with self._tenure.claiming() as epochs:
                claimed = await self._claim_for(epochs, limit, news=news)
        except StoreUnavailable as error:
            self._signals.wake.set()
            self._poll_failed("claim_failed", error)
            return None
        if claimed.more and not claimed.events:
            self._signals.wake.set()  # it found them in a state in which they must be read anew
        return claimed

    async def _claim_for(self, epochs: dict[int, int], limit: int, *, news: bool) -> Claimed:
        work, now = self._work, self._now()
        request = ClaimRequest(
            claim_id=self._new_id(),
            epochs=epochs,
            limit=limit,
            in_hand=work.hand.seqs,
            passed_over=self._throttle.passed_over(now),
            news=news,
            quotas=self._throttle.quotas(now),
        )
        work.asking(now)
        claimed = await self._store.claim(request)
        if not claimed.held:
            self._signals.renew.set()
        self._mix(claimed, news=news, began=now)
        events = self._tenure.still_owned(claimed.events, epochs)
        work.shut = self._throttle.shut_topics(now)
        going = work.claimed(request.claim_id, events, epochs, self._now(), ahead=claimed.news)
        self._throttle.spend(going)
        self._throttle.learn(events, going, self._now())
        self._observer.claimed(len(events), timedelta(seconds=self._now() - now))
        if work.to_settle:
            self._signals.outcomes.set()
        self._send()
        return claimed

    def _mix(self, claimed: Claimed, *, news: bool, began: float) -> None:
        now = self._now()
        if news:
            self._mixture.looked(now, found=bool(claimed.events))
        else:
            self._mixture.stepped(now, took=now - began, more=claimed.more)
        if claimed.news:
            self._mixture.met(now)

    async def _wait_for_room(self) -> None:
        self._signals.room.clear()
        await within(self._signals.room, self._config.sleep_busy)

    async def _rest(self, found_at: float, *, drain: bool) -> None:
        """Wait for a wake-up, not longer than the settings say."""
        lately = self._now() - found_at < self._config.sleep_idle
        await asyncio.sleep(_GATHER)
        limit = self._config.sleep_busy if lately or drain else self._config.sleep_idle
        await within(self._signals.wake, limit)

    async def _nothing_left(self) -> bool:
        """Tell whether what was claimed is settled, nothing has become due since, no topic is away."""
        if self._in_hand:
            await self._wait_for_room()
            return False
        if self._signals.wake.is_set():
            return False
        try:
            await self._chores.look()
        except StoreUnavailable as error:
            self._poll_failed("look_failed", error)
            return False
        if self._signals.wake.is_set():
            return False
        if not self._chores.awaits_topics:
            return True
        await within(self._signals.wake, _PAUSE_AFTER_ERROR)
        return False

    # Publishing

    def _send(self) -> None:
        """Hand over what may go; each call is a task."""
        now = self._now()
        if self._group is None or not self._tenure.valid:
            return
        while (call := self._next_call(now)) is not Call.NOTHING:
            batch = self._work.next_batch(now, filled=call is Call.BOTH)
            if batch is None:
                break
            self._publishing += 1
            self._hurrying += batch.ahead
            task = self._group.create_task(self._publish(batch), name="pillarbox-publish")
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        if self._work.to_settle:
            self._signals.outcomes.set()  # also what was refused without being sent
        if self._work.rests and not self._publishing and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_TRY_AGAIN, self._send_again)

    def _next_call(self, now: float) -> Call:
        most = self._config.batches_in_hand
        if self._mixture.mixed(now):
            most = min(CALLS, most)
        return next_call(self._publishing, self._hurrying, most, news=self._work.hurries)

    def _send_again(self) -> None:
        self._retry = None
        self._send()

    async def _publish(self, batch: Batch) -> None:
        batch = self._work.starting(batch)
        self._watch_order(batch.events)
        topics = [event.topic for event in batch.events]
        self._observer.sending(topics)
        began = self._now()
        try:
            outcomes = await outcomes_of(self._bus, batch) if batch.events else ()
        finally:
            self._publishing -= 1
            self._hurrying -= batch.ahead
        now = self._now()
        self._observer.answered(topics, outcomes, timedelta(seconds=now - began))
        self._tell_delivered(self._work.answered(batch, outcomes, now), now)
        self._signals.outcomes.set()
        if self._work.bus.closed:
            self._signals.room.set()
        self._send()

    def _watch_order(self, events: Sequence[OutboxEvent]) -> None:
        for event in self._order.broken(events):
            log.error("order_broken", extra={"event_id": event.event_id, "tenant": event.lane[0]})
            self._observer.order_broken(*event.lane)

    def _tell_delivered(self, events: Sequence[OutboxEvent], now: float) -> None:
        oldest: dict[str, OutboxEvent] = {}
        for event in events:
            # A batch goes by number, so the first event of a tenant is its oldest.
            oldest.setdefault(event.lane[0], event)
        for tenant_id, event in oldest.items():
            age = self._work.hand.age(event, now)
            self._observer.delivered(tenant_id, timedelta(seconds=age))

    async def _keep_for_ever(self) -> None:
        interval = min(self._config.lease / 3, 2.0)
        while True:
            await within(self._signals.renew, interval)
            self._signals.renew.clear()
            owned = self._tenure.epochs
            try:
                await self._tenure.keep()
            except StoreUnavailable as error:
                self._poll_failed("renewal_failed", error)
            self._tenure.lapse()
            if self._tenure.epochs != owned:
                self._order.forget()  # what others own meanwhile may come again
            self._signals.room.set()
            self._signals.idle.set()

    def _poll_failed(self, what: str, error: StoreUnavailable) -> None:
        log.warning(what, extra={"error": str(error)})
        self._tenure.cut_off()
        self._observer.poll_failed(error)

    async def _pause(self) -> None:
        await within(self._signals.stopping, _PAUSE_AFTER_ERROR)
