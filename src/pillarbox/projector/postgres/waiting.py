"""What waits: events that are due later, topics that keys wait for, what operators ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pillarbox.projector.postgres.claims import array
from pillarbox.projector.postgres.line import Line
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.store import Control, Promoted

_DUE_AT_ONCE: Final = 1_000


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
        [(events, seconds)] = await self._rows("promote", shards=array(shards), limit=_DUE_AT_ONCE)
        return Promoted(events, None if seconds is None else timedelta(seconds=seconds))

    async def topics(self) -> list[str]:
        """Name the topics that keys wait for."""
        return [topic for (topic,) in await self._rows("waiting_topics")]

    async def controls(self) -> list[Control]:
        """Read what operators asked for."""
        rows = await self._rows("controls")
        return [Control(tenant, topic, bool(paused), rate) for tenant, topic, paused, rate in rows]

    async def _rows(self, statement: str, **parameters: Any) -> list[Any]:
        async with self.line.use() as connection:
            cursor = await connection.execute(self.statements[statement], parameters)
            return await cursor.fetchall()
