"""The task that settles: it writes what the bus answered, however long the database is away."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pillarbox.projector.observer import Observer
from pillarbox.projector.signals import Signals, within
from pillarbox.projector.store import (
    Failure,
    OutboxEvent,
    Settled,
    Settlement,
    Store,
    StoreUnavailable,
)
from pillarbox.projector.work import Work

log = logging.getLogger("pillarbox.projector")

DeadHook = Callable[[OutboxEvent, Failure], Awaitable[None]]

# So long outcomes wait for others: a statement for each event would cost more than the claim.
_GATHER_OUTCOMES: Final = 0.02
_PAUSE_AFTER_ERROR: Final = 0.5
# Nothing is settled while hooks run.
HOOK_SECONDS: Final = 10.0
_HOOKS_AT_ONCE: Final = 100
# How soon an event is looked at again that waits for its topic and could not be set aside.
_LATER: Final = 1.0


@dataclass(slots=True)
class Settler:
    """Take outcomes from the work and write them; `send` is called when that makes room."""

    store: Store
    work: Work
    observer: Observer
    signals: Signals
    dead_hook: DeadHook | None
    now: Callable[[], float]
    send: Callable[[], None]
    poll_failed: Callable[[str, StoreUnavailable], None]
    gathers: bool = True
    settled_events: int = 0
    busy_since: float = math.inf

    async def settle_for_ever(self) -> None:
        """Write outcomes as they come; a few of them wait a moment for others."""
        while True:
            await self.signals.outcomes.wait()
            if self.gathers and not self.work.settles_at_once:
                await within(self.signals.stopping, _GATHER_OUTCOMES)
            self.signals.outcomes.clear()
            if self.work.to_settle:
                settlement, epochs = self.work.take_settlement()
                self.busy_since = self.now()
                await self._tell_of_the_dead(settlement)
                await self._settle(settlement, epochs)
                self.busy_since = math.inf

    async def _settle(self, settlement: Settlement, epochs: dict[int, int]) -> None:
        self.observer.settling(len(settlement.sent))
        began = self.now()
        result = await self._written(settlement, epochs)
        held = settlement.without(result.lost) if result.lost else settlement
        events, dropped = self.work.settled(settlement, result)
        if result.lost:
            self.observer.fenced(dropped)
            self.signals.renew.set()
        again = self._read_again(events, settlement)
        self.settled_events += len(held.sent)
        self.observer.settled(
            sent=len(held.sent),
            failed=len(held.failed),
            dead=len(held.dead),
            took=timedelta(seconds=self.now() - began),
        )
        if again:
            self.signals.wake.set()
        self.signals.room.set()
        self.signals.idle.set()
        self.send()

    def _read_again(self, events: Sequence[OutboxEvent], settlement: Settlement) -> bool:
        """Have events read again; tell whether to look at once.

        An event that waits for its topic, in front of another that blocks its key, cannot be set
        aside: at once it would come back for ever.
        """
        waiting = {event.seq for event in settlement.waiting}
        late = [event for event in events if event.seq in waiting]
        self.store.read_again([event for event in events if event.seq not in waiting])
        if late:
            asyncio.get_running_loop().call_later(_LATER, self._look_at, late)
            return len(late) < len(events)
        return bool(events) or settlement.troubled

    def _look_at(self, events: Sequence[OutboxEvent]) -> None:
        self.store.read_again(events)
        self.signals.wake.set()

    async def _written(self, settlement: Settlement, epochs: dict[int, int]) -> Settled:
        while True:
            self.busy_since = self.now()
            try:
                return await self.store.settle(settlement, epochs)
            except StoreUnavailable as error:
                self.poll_failed("settle_failed", error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR)

    async def _tell_of_the_dead(self, settlement: Settlement) -> None:
        """Call the hook before the events are marked, so that a crash repeats the calls.

        Many are called side by side: nothing is settled meanwhile, and many may expire together.
        """
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
        if self.dead_hook is not None:
            few = asyncio.Semaphore(_HOOKS_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for event, failure in settlement.dead:
                    group.create_task(self._call(self.dead_hook, few, event, failure))

    async def _call(
        self, hook: DeadHook, few: asyncio.Semaphore, event: OutboxEvent, failure: Failure
    ) -> None:
        async with few:
            self.busy_since = self.now()
            try:
                async with asyncio.timeout(HOOK_SECONDS):
                    await hook(event, failure)
            except Exception:
                log.exception("dead_hook_failed", extra={"event_id": event.event_id})
