"""One lane at work: take a batch, do it, and see to what became of it."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from pillarbox.bus.subscription import Subscription
from pillarbox.consumer.aside import move
from pillarbox.consumer.attempts import Trouble
from pillarbox.consumer.batch import Books, Ends
from pillarbox.consumer.lane import InHand, Lane, Line
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.parked import PARKED, WAITING, Standing
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.consumer.turnstile import Turnstile
from pillarbox.consumer.verdict import (
    HANDLER_ASKED,
    HANDLER_FAILED,
    AskedToWait,
    End,
    Failed,
    Finish,
    Follow,
    GiveUp,
    Hold,
    Outcome,
    Return,
    Rules,
    Trial,
    Untouched,
    Verdict,
    Wait,
    judge,
)
from pillarbox.consumer.work import Work

log = logging.getLogger("pillarbox.consumer")

PAUSE: Final = 0.5
"""Seconds before the database is asked again after it did not answer."""
# After a failure batches get savepoints at once, for so many batches.
_CAREFUL_BATCHES: Final = 20


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all lanes of a consumer share."""

    books: Books
    work: Work
    subscription: Subscription
    turnstile: Turnstile
    observer: Observer
    rules: Rules
    chance: random.Random
    now: Callable[[], float]
    stopping: asyncio.Event
    settled: asyncio.Event
    """Set whenever a batch is over: there is room in the window, or nothing left."""
    moved: asyncio.Event
    """Set when something was put into the table that comes back by itself."""
    crowded: Callable[[], bool]
    """Whether held messages take up so much of the window that others have too little of it."""


class LaneRunner:
    """Run one lane until told to stop."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.lane = Lane()
        self.wake = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._task: asyncio.Task[None] | None = None
        self._careful = 0
        self.newest: datetime | None = None
        """The time of the newest message that was finished here."""
        self.finished = 0
        """How many were done or set aside here."""

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Do batch after batch; each is a task, which can be rolled back by itself."""
        around = self._around
        while not around.stopping.is_set():
            self.wake.clear()
            crowd, until = self.lane.take_longest_held() if around.crowded() else ([], 0.0)
            batch = crowd or self.lane.take(around.now(), around.books.config.batch_size)
            if not batch:
                if not (self.lane.held and around.crowded()):
                    await self._rest()
                continue
            self._free.clear()
            work = self._relieve(crowd, until) if crowd else self._do(batch)
            try:
                self._task = group.create_task(work, name="pillarbox-batch")
                await asyncio.wait({self._task})
            finally:
                if self.lane.at_work:
                    self.lane.finish(batch)  # it was cancelled, and has had no effect
                self._task = None
                self._free.set()
                around.settled.set()

    async def let_go(self, seconds: float) -> None:
        """Wait for the batch at work; when it takes too long, roll it back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._free.wait()
        if self._task is not None:
            self._task.cancel()
            await self._free.wait()

    async def _rest(self) -> None:
        """Wait for a message, or for a held line's time."""
        due = self.lane.next_due()
        seconds = None if due is None else max(due - self._around.now(), 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()

    async def _do(self, batch: Sequence[InHand]) -> None:
        around = self._around
        around.observer.beginning(len(batch))
        turnstile = around.turnstile
        gate = turnstile.alone() if batch[0].alone else turnstile.beside_others()
        try:
            async with gate:
                ends = await around.work.do(batch, careful=self._careful > 0)
            around.observer.committed(len(batch))
            await self._settle(batch, ends)
        except DatabaseAway as error:
            self._away(error)
            self.lane.finish(batch)
            await asyncio.sleep(PAUSE)

    async def _relieve(self, items: Sequence[InHand], until: float) -> None:
        """Move a held line to the table before its time: it has too much of the window in hand."""
        head = items[0]
        end = head.last or Untouched()
        reason = HANDLER_ASKED if isinstance(end, AskedToWait) else HANDLER_FAILED
        wait = Wait(max(until - self._around.now(), 0.0), reason)
        try:
            await self._put(items, self._standing(head, wait, end), end, "waiting")
        except DatabaseAway as error:
            self._away(error)
            self.lane.finish(items, {head.line: until})
            await asyncio.sleep(PAUSE)
            return
        self.lane.finish()
        self._count(items)

    async def _settle(self, batch: Sequence[InHand], ends: Ends) -> None:
        """Acknowledge what is finished; hold, move or take back the rest."""
        verdicts = {item: self._verdict(item, ends[item]) for item in batch}
        done = {item for item, verdict in verdicts.items() if isinstance(verdict, Finish)}
        await self._acknowledge([item for item in batch if item in done], verdicts)
        held = self._held(verdicts)
        await self._note_attempts([(i, ends[i]) for i in batch if i.line in held])
        done |= await self._set_aside(batch, verdicts, ends, held)
        self.lane.finish([item for item in batch if item not in done], held)
        self._count(done)
        times = [self.newest, *(item.recorded_at for item in done)]
        self.newest = max((time for time in times if time is not None), default=None)
        failed = any(isinstance(end, Trial) for end in ends.values())
        self._careful = _CAREFUL_BATCHES if failed else max(self._careful - 1, 0)

    def _count(self, done: Collection[InHand]) -> None:
        """Count what does not come again: of a lost partition all may come again."""
        self.finished += sum(not item.lost for item in done)

    async def _set_aside(
        self,
        batch: Sequence[InHand],
        verdicts: dict[InHand, Verdict],
        ends: Ends,
        held: dict[Line, float],
    ) -> set[InHand]:
        """Move to the table what does not stay in hand; return what went.

        Where nothing went, nothing of that line is tried again now: it would pass what did not go.
        """
        gone: set[InHand] = set()
        stuck: set[Line] = set()
        for number, (item, verdict) in enumerate(verdicts.items(), start=1):
            if not isinstance(verdict, Wait | GiveUp | Follow) or item in gone:
                continue
            if item.line not in stuck:
                left = (i for i in batch[number:] if not isinstance(verdicts[i], Finish))
                behind = [i for i in left if i.line == item.line and i not in gone]
                moved = await self._move(item, behind, verdict, ends[item], held)
                gone.update(moved)
                stuck |= set() if moved else {item.line}
        return gone

    def _verdict(self, item: InHand, end: End) -> Verdict:
        around, now = self._around, self._around.now()
        if isinstance(end, Trial):
            item.attempts += 1
            around.observer.ended("failed", 1)
            log.warning("message_failed", extra=_described(item, end))
        verdict = judge(
            end,
            attempt=item.attempts,
            held_for=0.0 if item.held_since is None else now - item.held_since,
            rules=around.rules,
            chance=around.chance,
        )
        if isinstance(verdict, Hold):
            item.held_since, item.last = now if item.held_since is None else item.held_since, end
        if isinstance(verdict, Return):
            item.alone = item.alone or verdict.alone
        return verdict

    def _held(self, verdicts: dict[InHand, Verdict]) -> dict[Line, float]:
        now = self._around.now()
        return {
            item.line: now + verdict.seconds
            for item, verdict in verdicts.items()
            if isinstance(verdict, Hold)
        }

    async def _acknowledge(self, items: Sequence[InHand], verdicts: dict[InHand, Verdict]) -> None:
        if not items:
            return
        await self._around.subscription.acknowledge([item.delivery for item in items])
        observer = self._around.observer
        counts: Counter[Outcome] = Counter()
        for item in items:
            verdict = verdicts[item]
            if isinstance(verdict, Finish):
                counts[verdict.outcome] += 1
        for outcome, messages in counts.items():
            observer.ended(outcome, messages)
        observer.acknowledged(len(items))

    async def _note_attempts(self, tries: Sequence[tuple[InHand, End]]) -> None:
        """Write failures of messages that stay in hand, so that another process knows of them."""
        books = self._around.books
        counted = [(item, Trouble.of(end)) for item, end in tries if isinstance(end, Trial)]
        if not counted:
            return
        try:
            async with books.transactions.begin(counted[0][0].tenant_id) as session:
                await books.attempts.failed(session, counted, books.clock.now())
        except DatabaseAway as error:
            self._away(error)  # the count in hand is enough, unless this process dies
            return
        for item, _ in counted:
            item.marked = False

    async def _move(
        self,
        item: InHand,
        behind: Sequence[InHand],
        verdict: Wait | GiveUp | Follow,
        end: End,
        held: dict[Line, float],
    ) -> Sequence[InHand]:
        """Move a message to the table, with all behind it if its key is held; return what went."""
        around = self._around
        standing = self._standing(item, verdict, end)
        alone = standing is not None and not standing.holds_key
        followers = [] if alone else self.lane.followers(item.line)
        items = [item] if alone else [item, *behind, *followers]
        outcome: Outcome = "parked" if isinstance(verdict, GiveUp) else "waiting"
        try:
            moved = await self._put(items, standing, end, outcome)
        except DatabaseAway as error:
            self._away(error)
            held[item.line] = around.now() + PAUSE
            return ()
        return items if moved else ()

    async def _put(
        self, items: Sequence[InHand], standing: Standing | None, end: End, outcome: Outcome
    ) -> bool:
        """Put messages of a line into the table, acknowledge them, and tell; False if none went."""
        around, item = self._around, items[0]
        if not await move(around.books, items, standing):
            return False
        self.lane.remove(items)
        log.warning("message_set_aside", extra={**_described(item, end), "outcome": outcome})
        around.observer.ended(outcome, 1)
        if items[1:]:
            around.observer.ended("waiting", len(items) - 1)
        await around.subscription.acknowledge([found.delivery for found in items])
        around.observer.acknowledged(len(items))
        around.moved.set()
        return True

    def _standing(self, item: InHand, verdict: Wait | GiveUp | Follow, end: End) -> Standing | None:
        """Say how a message stands in the table; None: behind the others of its key."""
        books = self._around.books
        due: datetime | None = None
        match verdict:
            case Follow():
                return None
            case Wait():
                due = books.clock.now() + timedelta(seconds=verdict.seconds)
                state, holds = WAITING, item.key is not None
            case GiveUp():
                holds = item.key is not None and books.config.on_parked == "hold"
                state = PARKED
            case _:
                assert_never(verdict)
        standing = Standing(state, verdict.reason, holds, due, item.attempts)
        if not isinstance(end, Trial):
            return standing
        trouble = Trouble.of(end)
        return replace(standing, error_class=trouble.error_class, error_message=trouble.message)

    def _away(self, error: DatabaseAway) -> None:
        log.warning("database_away", extra={"error": str(error)})
        self._around.observer.database_away(error)


def _described(item: InHand, end: End) -> dict[str, object]:
    return {
        "message_id": item.message_id,
        "tenant": item.tenant_id,
        "topic": item.delivery.message.topic,
        "position": f"{item.delivery.partition} {item.delivery.position}",
        "attempt": item.attempts,
        "error_class": end.error_class if isinstance(end, Failed) else type(end).__name__,
    }
