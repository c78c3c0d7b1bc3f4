"""Chores beside the work: what is due, what operators ask for, waiting topics, wake-ups."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pillarbox.outbox.release import CHUNK
from pillarbox.outbox.wakeup import Wakeup
from pillarbox.projector.store import Store, StoreUnavailable
from pillarbox.projector.tenure import Tenure
from pillarbox.projector.throttle import Throttle
from pillarbox.projector.work import Work

log = logging.getLogger("pillarbox.projector")

# Keys that are released at a time when their topic can be had again, and at most for a rate.
_RELEASED_AT_ONCE: Final = 500
_RELEASED_BY_RATE: Final = 10_000
# How often what is due is looked at, in seconds: seldom when nothing is known, and never more often.
_SELDOM: Final = 1.0
_OFTEN: Final = 0.05
_LISTEN_AGAIN: Final = 2.0


@dataclass(slots=True)
class Chores:
    """Bring back what waits, and tell the claiming task of it."""

    store: Store
    work: Work
    throttle: Throttle
    tenure: Tenure
    wake: Callable[[], None]
    sleep_idle: float
    now: Callable[[], float]
    poll_failed: Callable[[str, StoreUnavailable], None]
    awaits_topics: bool = False
    """Whether the last look met keys of a topic that is away, and will be tried again."""

    async def look_for_ever(self) -> None:
        """Look after what is due and what operators ask for."""
        while True:
            pause = _SELDOM
            try:
                pause = await self.look()
            except StoreUnavailable as error:
                self.poll_failed("look_failed", error)
            await asyncio.sleep(pause)

    async def obey(self) -> None:
        """Learn what operators ask for; nothing is to be claimed before."""
        self.throttle.share = self.tenure.share
        self.throttle.apply(await self.store.controls(), self.now())

    async def look(self) -> float:
        """Bring back what is due, and keys whose topic is back; return the seconds until the next look."""
        began = self.now()
        await self.obey()
        if not self.tenure.epochs:
            return _SELDOM  # whoever sends nothing does not know which topics can be had
        more = False
        topics = await self.store.waiting_topics()
        for topic in topics:
            more |= await self._release(topic, self.now())
        # A try that found no key to let go of leaves its topic's pause behind it: nothing to wait for.
        self.awaits_topics = any(self._is_away(topic, self.now()) for topic in topics)
        promoted = await self.store.promote(sorted(self.tenure.epochs))
        if promoted.events:
            self.wake()
        longest = min(self.sleep_idle, _SELDOM)
        if more or promoted.more:
            # Settling shares the connection, and has it for as long as this look had.
            return min(self.now() - began, longest)
        if promoted.next_due is None:
            return longest
        return min(max(promoted.next_due.total_seconds(), _OFTEN), longest)

    async def _release(self, topic: str, now: float) -> bool:
        """Let go of keys that wait for a topic; tell whether more should follow at once.

        While its breaker is open it is one event, as a try. Where there is a rate, it is what the rate
        allows, and more only when time has passed.
        """
        if ("*", topic) in self.throttle.shut_topics(now) or self._is_away(topic, now):
            return False
        breaker = self.work.topics.get(topic)
        room = self.throttle.room(topic, now)
        most = _RELEASED_AT_ONCE if room < 0 else min(room, _RELEASED_BY_RATE)
        keys = most if breaker is None else min(most, 1)
        apart = self.throttle.rooms_apart(topic, now)
        # What is tried may go back at once: not more of it than tells whether the topic is back.
        chunk = CHUNK if breaker is None else 1
        released = await self.store.release_topic(topic, keys, apart, chunk) if keys else 0
        if released:
            self.wake()
        return released == _RELEASED_AT_ONCE and room < 0

    def _is_away(self, topic: str, now: float) -> bool:
        """Tell whether a topic is to be tried later, or just now; one that is shut is not tried."""
        breaker = self.work.topics.get(topic)
        if breaker is None or ("*", topic) in self.throttle.shut_topics(now):
            return False
        return breaker.trying or now < breaker.again_at

    async def listen_for_ever(self) -> None:
        """Wake up when another process commits; polling goes on whatever happens here."""
        while True:
            try:
                async with self.store.wake_ups() as told:
                    async for _ in told:
                        self.wake()
            except StoreUnavailable as error:
                log.info("listener_lost", extra={"error": str(error)})
            await asyncio.sleep(_LISTEN_AGAIN)

    async def hear_for_ever(self, wakeup: Wakeup) -> None:
        """Wake up when this process commits."""
        with wakeup.listen() as listener:
            while True:
                await listener.wait()
                self.wake()
