"""Tenure: the shards that this projector owns, and for how long it may believe so."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pillarbox.projector.observer import Observer
from pillarbox.projector.store import OutboxEvent, Store
from pillarbox.projector.work import Work

log = logging.getLogger("pillarbox.projector")


@dataclass(slots=True)
class Tenure:
    """Keep leases and let go of what is lost.

    The database's clock judges leases, and settling is fenced by their rows. The local clock only
    says when to stop sending: a projector that was frozen for longer than its lease has lost it.
    """

    store: Store
    work: Work
    observer: Observer
    shards: int
    lease: float
    now: Callable[[], float]
    epochs: dict[int, int] = field(default_factory=dict)
    _leaving: frozenset[int] = frozenset()
    _asked_for: frozenset[int] = frozenset()
    _valid_until: float = 0.0
    _cut_off_at: float = -math.inf

    @property
    def valid(self) -> bool:
        """Whether the leases hold, by the local clock."""
        return bool(self.epochs) and self.now() < self._valid_until

    @property
    def share(self) -> float:
        """The part of all shards that is owned."""
        return len(self.epochs) / self.shards

    @contextmanager
    def claiming(self) -> Iterator[dict[int, int]]:
        """Yield the shards to claim for: not those that are being handed over.

        None of them is handed over before the claim has ended: its events come in hand then.
        """
        epochs = self.epochs
        if self._leaving:
            epochs = {shard: at for shard, at in epochs.items() if shard not in self._leaving}
        self._asked_for = frozenset(epochs)
        try:
            yield epochs
        finally:
            self._asked_for = frozenset()

    def still_owned(
        self, events: Sequence[OutboxEvent], epochs: Mapping[int, int]
    ) -> Sequence[OutboxEvent]:
        """Leave out events of shards that were lost while they were being claimed."""
        if epochs is self.epochs:
            return events
        lost = {shard for shard, epoch in epochs.items() if self.epochs.get(shard) != epoch}
        if not lost:
            return events
        self.store.forget(lost)
        return [event for event in events if event.shard not in lost]

    async def keep(self) -> None:
        """Renew, take and hand over; raises when the database does not answer."""
        began = self.now()
        self.observer.renewing()
        ownership = await self.store.keep(self.work.hand.active())
        self._valid_until = began + self.lease
        self._lose(
            shard for shard, epoch in self.epochs.items() if ownership.epochs.get(shard) != epoch
        )
        self.epochs = dict(ownership.epochs)
        if self.now() > self._cut_off_at + 2 * self.lease:
            self.work.suspect(ownership.suspects)
        self.observer.owns(len(self.epochs))
        await self._hand_over(frozenset(ownership.hand_over))

    def cut_off(self) -> None:
        """Note that the database was away: whoever lost a lease meanwhile need not have died."""
        self._cut_off_at = self.now()

    def lapse(self) -> bool:
        """Let go of everything when the leases were not renewed in time; tell whether it was so."""
        lapsed = bool(self.epochs) and not self.valid
        if lapsed:
            self._lose(self.epochs)
        return lapsed

    async def _hand_over(self, shards: frozenset[int]) -> None:
        """Give shards back as soon as nothing of them is in hand or on its way there."""
        self._leaving = shards
        free = {
            shard
            for shard in shards - self._asked_for
            if not self.work.hand.holds(frozenset({shard}))
        }
        if free:
            await self.store.hand_over(sorted(free))
            self.store.forget(free)
            self.epochs = {shard: at for shard, at in self.epochs.items() if shard not in free}
            self._leaving -= free

    def _lose(self, shards: Iterable[int]) -> None:
        lost = frozenset(shards)
        if not lost:
            return
        dropped = self.work.drop(lost)
        self.store.forget(lost)
        self.epochs = {shard: at for shard, at in self.epochs.items() if shard not in lost}
        log.warning("leases_lost", extra={"shards": len(lost), "events_dropped": dropped})
        self.observer.fenced(dropped)
