"""The rows of messages that come back: locked, and changed or removed by what became of a try."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.attempts import Trouble
from pillarbox.consumer.batch import FINISHED, Books, Ends
from pillarbox.consumer.lane import InHand
from pillarbox.consumer.parked import PARKED, WAITING
from pillarbox.consumer.verdict import (
    End,
    Finish,
    GiveUp,
    Hold,
    Outcome,
    Rules,
    Trial,
    Verdict,
    Wait,
    judge,
)
from pillarbox.retry import RetryPolicy

Pair = tuple[Row[Any], InHand]
"""A row, and the message that was read from it."""


class ReturnRows:
    """Read and write rows of messages that come back, inside the transactions of others."""

    def __init__(self, books: Books, chance: random.Random) -> None:
        self._books, self._chance = books, chance
        config = books.config
        retry = RetryPolicy(config.max_attempts, config.retry_delay, config.retry_delay_max)
        # It is in the table already: nothing is held in hand.
        self._rules = Rules(retry, hold_limit=0.0)

    async def lock(
        self, session: AsyncSession, pairs: Sequence[Pair], until: datetime | None
    ) -> Sequence[Pair]:
        """Lock the first of these rows, up to one that does not wait any more or somebody has.

        Of a head that is due at another time than `until` somebody else has had the rows since:
        none is locked then, for what was read of them may not be true any more.
        """
        columns, head = self._books.parked.table.c, pairs[0][0]
        query = self._waiting(pairs).order_by(columns.seq).with_for_update(skip_locked=True)
        locked = {row.parked_id: row.due_at for row in await session.execute(query)}
        if locked.get(head.parked_id) != until:
            return ()
        number = next((n for n, (row, _) in enumerate(pairs) if row.parked_id not in locked), None)
        return pairs[:number]

    async def still_behind(self, session: AsyncSession, pairs: Sequence[Pair]) -> list[InHand]:
        """Return those of these messages that still wait behind another one of their key."""
        if not pairs:
            return []
        found = await session.execute(self._waiting(pairs))
        behind = {row.parked_id for row in found if row.due_at is None}
        return [item for row, item in pairs if row.parked_id in behind]

    def _waiting(self, pairs: Sequence[Pair]) -> Select[Any]:
        columns = self._books.parked.table.c
        return (
            select(columns.parked_id, columns.due_at)
            .where(columns.tenant_id == pairs[0][0].tenant_id)
            .where(columns.parked_id.in_([row.parked_id for row, _ in pairs]))
            .where(columns.state == WAITING)
        )

    async def settle(
        self, session: AsyncSession, pairs: Sequence[Pair], ends: Ends
    ) -> Sequence[Outcome]:
        """Write what became of messages of one key, or of one; what was not tried stays."""
        finished = [pair for pair in pairs if isinstance(ends[pair[1]], FINISHED)]
        outcomes = [self._outcome(ends[item]) for _, item in finished]
        await self.finish(session, [row for row, _ in finished])
        for row, item in pairs:
            end = ends[item]
            if isinstance(end, Trial):
                outcomes.append(await self._failed(session, row, item, end))
        return outcomes

    async def finish(self, session: AsyncSession, rows: Sequence[Row[Any]]) -> None:
        """Take rows of one key away, and let the next of it go on."""
        if rows:
            parked, row = self._books.parked, rows[0]
            await parked.remove(session, rows)
            await parked.go_on(session, row.tenant_id, row.key, self._books.clock.now())

    async def give_up(
        self,
        session: AsyncSession,
        row: Row[Any],
        reason: str,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Park a message that was tried; it goes on holding its key if that is the policy."""
        holds = row.holds_key and self._books.config.on_parked == "hold"
        await self._leave(session, row, reason, {**(values or {}), "holds_key": int(holds)})

    async def park(self, session: AsyncSession, row: Row[Any], reason: str, why: str) -> None:
        """Park a message that cannot be tried; it holds nothing."""
        values = {"holds_key": 0, "error_message": why, "error_class": None}
        await self._leave(session, row, reason, values)

    async def _failed(
        self, session: AsyncSession, row: Row[Any], item: InHand, end: Trial
    ) -> Outcome:
        attempts, trouble = row.attempts + 1, Trouble.of(end)
        await self._books.attempts.forget(session, [item])
        values: dict[str, Any] = {
            "attempts": attempts,
            "error_class": trouble.error_class,
            "error_message": trouble.message,
        }
        match self._verdict(end, attempts):
            case GiveUp(reason):
                await self.give_up(session, row, reason, values)
                return "parked"
            case Wait(seconds) | Hold(seconds):
                due = self._books.clock.now() + timedelta(seconds=seconds)
                await self._change(session, row, {**values, "due_at": due})
        return "failed"

    def _outcome(self, end: End) -> Outcome:
        verdict = self._verdict(end, 0)
        return verdict.outcome if isinstance(verdict, Finish) else "failed"

    def _verdict(self, end: End, attempt: int) -> Verdict:
        return judge(end, attempt=attempt, held_for=0.0, rules=self._rules, chance=self._chance)

    async def _leave(
        self, session: AsyncSession, row: Row[Any], reason: str, values: dict[str, Any]
    ) -> None:
        """Leave a row to a person."""
        left = {"state": PARKED, "due_at": None, "reason": reason, **values}
        await self._change(session, row, left)
        await self._books.parked.go_on(session, row.tenant_id, row.key, self._books.clock.now())

    async def _change(self, session: AsyncSession, row: Row[Any], values: dict[str, Any]) -> None:
        now = self._books.clock.now()
        await self._books.parked.change(session, row, {**values, "last_at": now})
