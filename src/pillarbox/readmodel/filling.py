"""How far a rebuild from a broker's log is: counted by its consumer, against what the broker says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

from pillarbox.consumer.consumer import Consumer
from pillarbox.consumer.standing import Standing
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.readmodel.checkpoint import Checkpoints, Generation
from pillarbox.readmodel.parts import Parts
from pillarbox.readmodel.progress import Pace, Phase, Progress, Reporter

_EVERY: Final = 0.5


def end_of(done: int, standing: Standing) -> int | None:
    """Say how many messages there are in all, as far as the broker knows; None if it does not.

    `done` were finished before this consumer began.
    """
    here = done + standing.finished + standing.in_hand
    if standing.waiting is not None:
        return here + standing.waiting
    return here if standing.at_end else None


class Filling:
    """Count what the consumers of one rebuild take, tell it, and note it for the next process.

    A process that is killed has not noted its last seconds: the next one counts so much less.
    """

    def __init__(self, at: Generation, parts: Parts, report: Reporter) -> None:
        self._at, self._parts, self._report = at, parts, report
        self._checkpoints = Checkpoints(parts.schema)
        self._done, self._end = at.events, at.target
        self._pace = Pace(self._done, self._done)

    async def hear(self, standing: Standing) -> None:
        """Hear from the consumer that runs what its broker says; one that is silent takes nothing back."""
        end = end_of(self._done, standing)
        self._end = self._end if end is None else end
        await self._note(self._done + standing.finished)

    async def to_the_end(self, consumer: Consumer, patience: timedelta) -> bool:
        """Take messages until the broker says that nothing waits; tell whether it did."""
        caught_up = await consumer.catch_up(patience)
        if caught_up:
            self._end = self._done + consumer.standing().finished
        return caught_up

    @asynccontextmanager
    async def by(self, consumer: Consumer, phase: Phase) -> AsyncIterator[None]:
        """Tell how far it is while a consumer runs, and once more when it has ended."""
        telling = asyncio.ensure_future(self._for_ever(consumer, phase))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait({telling})
            self._done += consumer.standing().finished
            await self._note(self._done)
        if not telling.cancelled() and (error := telling.exception()) is not None:
            raise error
        self.tell(phase)

    def tell(self, phase: Phase, more: int = 0) -> None:
        """Tell the reporter where the rebuild is, with so many taken by the consumer that runs."""
        position = self._done + more
        end = position if phase == "done" else self._end
        speed, rate = self._pace.at(position, position)
        self._report(
            Progress(
                model=self._at.name,
                phase=phase,
                position=position,
                target=None if end is None else max(end, position),
                events=position,
                events_per_second=rate,
                positions_per_second=speed,
            )
        )

    async def _for_ever(self, consumer: Consumer, phase: Phase) -> None:
        try:
            while True:
                await asyncio.sleep(_EVERY)
                self.tell(phase, consumer.standing().finished)
        except Exception:
            consumer.stop()  # the reporter has had enough
            raise

    async def _note(self, events: int) -> None:
        with suppress(DatabaseAway):
            async with self._parts.transactions.begin(None) as session:
                await self._checkpoints.note(session, self._at, events=events, target=self._end)
