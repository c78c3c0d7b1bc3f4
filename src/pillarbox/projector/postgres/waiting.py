"""What waits: events that are due later, topics that keys wait for, what operators ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pillarbox.projector.postgres.claims import array
from pillarbox.projector.postgres.line import Line
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.store import DUE_AT_ONCE, DUE_WINDOW, Control, Promoted


@dataclass(frozen=True, slots=True)
class Waiting:
    """Bring back what is due, and tell what waits.

    These statements share the connection of those that settle, which wait for the same locks of the
    outbox; the leases have one of their own, and are kept meanwhile.
    """

    line: Line
    statements: Statements

    async def promote(self, shards: Sequence[int]) -> Promoted:
        """Make claimable what has become due, and tell when the next event does."""
        events, full, seconds = await self._bring_back(shards, DUE_AT_ONCE)
        if full and events < DUE_AT_ONCE:
            # Another transaction holds some of them; those behind them need not wait for it.
            others, _, seconds = await self._bring_back(shards, DUE_WINDOW)
            events += others
        next_due = None if seconds is None else timedelta(seconds=seconds)
        return Promoted(events, next_due, more=full and events > 0)

    async def _bring_back(self, shards: Sequence[int], most: int) -> tuple[int, bool, float | None]:
        """Return how many came back, whether there were as many to choose, and when the next is due."""
        parameters = {"shards": array(shards), "limit": most, "window": DUE_WINDOW}
        [(events, full, seconds)] = await self._rows("promote", **parameters)
        return events, full, seconds

    async def topics(self) -> list[str]:
        """Name the topics that keys wait for."""
        return [topic for (topic,) in await self._rows("waiting_topics")]

    async def controls(self) -> list[Control]:
        """Read what operators asked for."""
        rows = await self._rows("controls")
        return [Control(tenant, topic, bool(paused), rate) for tenant, topic, paused, rate in rows]

    async def log_readers(self) -> list[str]:
        """Name the read models that follow the outbox's log."""
        return [name for (name,) in await self._rows("log_readers")]

    async def _rows(self, statement: str, **parameters: Any) -> list[Any]:
        async with self.line.use() as connection:
            # As in `Settling`, a plan for a small table would be no good for a large one.
            cursor = await connection.execute(self.statements[statement], parameters, prepare=False)
            return await cursor.fetchall()
