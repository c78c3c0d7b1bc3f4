"""The task that settles: it writes what the bus answered, however long the database is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
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

    async def settle_for_ever(self) -> None:
        """Write outcomes as they come; a few of them wait a moment for others."""
        while True:
            await self.signals.outcomes.wait()
            if self.gathers and not self.work.settles_at_once:
                await within(self.signals.stopping, _GATHER_OUTCOMES)
            self.signals.outcomes.clear()
            if self.work.to_settle:
                settlement, epochs = self.work.take_settlement()
                await self._tell_of_the_dead(settlement)
                await self._settle(settlement, epochs)

    async def _settle(self, settlement: Settlement, epochs: dict[int, int]) -> None:
        self.observer.settling(len(settlement.sent))
        began = self.now()
        result = await self._written(settlement, epochs)
        if result.lost:
            self.observer.fenced(len(result.lost))
            self.signals.renew.set()
        sent = [event for event in settlement.sent if event.shard not in result.lost]
        self.store.read_again(self.work.settled(settlement, result))
        self.settled_events += len(sent)
        self.observer.settled(
            sent=len(sent),
            failed=len(settlement.failed),
            dead=len(settlement.dead),
            took=timedelta(seconds=self.now() - began),
        )
        if result.again or settlement.troubled:
            self.signals.wake.set()
        self.signals.room.set()
        self.signals.idle.set()
        self.send()

    async def _written(self, settlement: Settlement, epochs: dict[int, int]) -> Settled:
        while True:
            try:
                return await self.store.settle(settlement, epochs)
            except StoreUnavailable as error:
                self.poll_failed("settle_failed", error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR)

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
            if self.dead_hook is not None:
                try:
                    await self.dead_hook(event, failure)
                except Exception:
                    log.exception("dead_hook_failed", extra={"event_id": event.event_id})
