"""One claim at a time through the projector's store, on a database in a given state."""

import os
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import psycopg

from benchmarks.backlog import Backlog, connected, fill
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import ALL
from pillarbox.projector.store import ClaimRequest, Member, OutboxEvent, Settlement

SHARDS: Final = 64
BATCH: Final = 1_000
NOTE: Final = 20
# Shards of a backlog give a few rows more or less.
ALIKE: Final = 0.02
# Leases outlive the measurement: nothing is renewed meanwhile.
_CONFIG: Final = OutboxProjectorConfig(batch_size=BATCH, lease=3_600)


@dataclass(slots=True)
class Claimant:
    """The only member of a database: it adds a batch, claims it and settles it."""

    store: PostgresStore
    epochs: dict[int, int]
    writer: psycopg.Connection
    waits: bool
    passed_over: Collection[str] = ()
    batch: int = BATCH
    _next: int = 1

    async def claims(self, count: int) -> list[float]:
        """Return the seconds of so many claims; adding and settling are not timed."""
        return [await self.claim() for _ in range(count)]

    async def claim(self) -> float:
        """Claim one batch and settle it; return the claim's seconds, its commit included."""
        if not self.waits:
            self._add_a_batch()
        claim_id = uuid4()
        request = ClaimRequest(claim_id, self.epochs, BATCH, set(), self.passed_over)
        start = time.perf_counter()
        claimed = await self.store.claim(request)
        took = time.perf_counter() - start
        await self._settle(claimed.events, claim_id)
        if abs(len(claimed.events) - self.batch) > self.batch * ALIKE:
            raise AssertionError(f"claimed {len(claimed.events)} events, not {self.batch}")
        return took

    async def learn_batch(self) -> int:
        """Find out how many of the waiting rows one claim takes: some room is kept for new ones."""
        claim_id = uuid4()
        request = ClaimRequest(claim_id, self.epochs, BATCH, set(), self.passed_over)
        claimed = await self.store.claim(request)
        if claimed.events:
            await self._settle(claimed.events, claim_id)
        return len(claimed.events)

    def _add_a_batch(self) -> None:
        fill(self.writer, Backlog(self.batch, note=NOTE, per_transaction=BATCH, first=self._next))
        self._next += self.batch

    async def _settle(self, events: Sequence[OutboxEvent], claim_id: UUID) -> None:
        settlement = Settlement(sent=list(events), ended=[claim_id])
        settled = await self.store.settle(settlement, self.epochs)
        assert not settled.lost, "the leases were lost"


@asynccontextmanager
async def claimant(
    url: str, *, waits: bool = False, passed_over: Collection[str] = ()
) -> AsyncIterator[Claimant]:
    """Own all shards of a database; with `waits` the rows to claim are there already."""
    member_id = uuid4()
    store = PostgresStore(
        connect_to(url),
        config=_CONFIG,
        scope=ALL,
        member_id=member_id,
        source="shop",
        schema=None,
        shards=SHARDS,
    )
    member = Member(member_id, "shop", "localhost", os.getpid(), "0")
    with connected(url) as writer:
        async with store:
            await store.join(member)
            owned = await store.keep([])
            assert len(owned.epochs) == SHARDS, "the claimant does not own every shard"
            made = Claimant(store, dict(owned.epochs), writer, waits, passed_over)
            # The first claim on a connection also looks for what was there before it.
            found = await made.learn_batch()
            assert waits or not found, "there are rows to claim where none should be"
            made.batch = found or BATCH
            yield made
            await store.leave()
