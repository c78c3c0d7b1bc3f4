"""Waiting messages come back: the head of a key, when it is due, in one transaction with its row.

A look takes a due row that nobody has, marks its message as begun with, and lets the row be due a
little later: that is how long it takes until another process tries again, should this one die
before it has the row in the handler's transaction. From then on the row's lock keeps others away.
"""

import random
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.aside import move
from pillarbox.consumer.attempts import Marks, Trouble
from pillarbox.consumer.batch import Books
from pillarbox.consumer.identity import is_place
from pillarbox.consumer.lane import InHand, in_hand
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.parked import PARKED, WAITING, Standing
from pillarbox.consumer.routes import Ignored, Routes
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.consumer.verdict import (
    CONTENT_MISMATCH,
    CRASHED,
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
from pillarbox.consumer.work import Work, end_of
from pillarbox.errors import ContentMismatch
from pillarbox.event.incoming import Incoming, Unreadable
from pillarbox.retry import RetryPolicy
from pillarbox.tenancy import DEFAULT_TENANT

_LEASE: Final = timedelta(seconds=5)


class Look(Enum):
    """What a look at the table came to."""

    NOTHING = "nothing is due"
    DONE = "a message came back"
    ALONE = "a message is due that must have the process for itself"


class Returning:
    """Bring messages back, one at a time; several may do so at once, here and elsewhere."""

    def __init__(
        self, books: Books, routes: Routes, work: Work, observer: Observer, chance: random.Random
    ) -> None:
        self._books, self._routes, self._work = books, routes, work
        self._observer, self._chance = observer, chance
        config = books.config
        retry = RetryPolicy(config.max_attempts, config.retry_delay, config.retry_delay_max)
        # It is in the table already: nothing is held in hand.
        self._rules = Rules(retry, hold_limit=0.0)
        self._unfinished: list[tuple[Row[Any], InHand]] = []

    async def look(self, tenant_id: str | None, *, alone: bool = False) -> Look:
        """Bring back the next due message of a tenant, or of all; `alone`, also a suspected one."""
        await self.give_back()
        books, now = self._books, self._books.clock.now()
        async with books.transactions.begin(tenant_id or DEFAULT_TENANT) as session:
            row = (await session.execute(books.parked.due(now, tenant_id))).first()
            if row is None:
                return Look.NOTHING
            item = self._item(row)
            if item is None:
                await self._finish(session, row)
                return Look.DONE
            if isinstance(item.content, Unreadable):
                await self._park(session, row, item.content.code, item.content.reason)
                return Look.DONE
            item.alone, at_home = alone, item.tenant_id == row.tenant_id
            marks = await books.attempts.begin(session, [item], now) if at_home else Marks()
            if marks.suspected:
                return Look.ALONE
            if marks.killers:
                await books.attempts.forget(session, [item])  # else no redrive would be tried
                await self._give_up(session, row, CRASHED)
                return Look.DONE
            await books.parked.change(session, row, {"due_at": now + _LEASE})
        await (self._try(row, item) if at_home else self._send_home(row, item))
        return Look.DONE

    async def _try(self, row: Row[Any], item: InHand) -> None:
        """Bring a message back that is marked; remember it if it was not finished."""
        settled = False
        try:
            settled = await self._bring_back(row, item)
        finally:
            if not settled:
                self._unfinished.append((row, item))

    async def give_back(self) -> None:
        """Say that this process did not die over messages which it began with and did not finish.

        The database went away under them, or the consumer was stopped. They are due as before.
        """
        while self._unfinished:
            row, item = found = self._unfinished.pop()
            try:
                await self._unmark(row, item)
            except BaseException:
                self._unfinished.append(found)
                raise

    async def _unmark(self, row: Row[Any], item: InHand) -> None:
        books = self._books
        async with books.transactions.begin(row.tenant_id) as session:
            if await self._lock(session, row):  # else somebody else has it by now
                await books.attempts.unmark(session, [item])
                await books.parked.change(session, row, {"due_at": row.due_at})

    async def _send_home(self, row: Row[Any], item: InHand) -> None:
        """Move a message that can be read by now into the tenant that it names.

        No transaction reaches both tenants: after a crash it is in both, and takes effect once.
        """
        books = self._books
        due = Standing(WAITING, row.reason, holds_key=False, due_at=books.clock.now())
        await move(books, [item], due)
        async with books.transactions.begin(row.tenant_id) as session:
            if await self._lock(session, row):
                await books.parked.remove(session, row)

    async def _bring_back(self, row: Row[Any], item: InHand) -> bool:
        """Handle a message in one transaction with its row; a failure is written in another.

        False means that the row was not to be had, and nothing is written.
        """
        books = self._books
        try:
            async with books.transactions.begin(row.tenant_id) as session:
                if not await self._lock(session, row):
                    return False
                batch = await self._work.handle(session, item)
                outcome = await self._settle(session, row, item, batch.ends[item])
            batch.tell()
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
            async with books.transactions.begin(row.tenant_id) as session:
                if not await self._lock(session, row):
                    return False
                if isinstance(error, ContentMismatch):
                    await books.attempts.forget(session, [item])
                    await self._park(session, row, CONTENT_MISMATCH, str(error))
                    outcome = "parked"
                else:
                    outcome = await self._settle(session, row, item, end_of(error))
        self._observer.returned(outcome)
        return True

    async def _lock(self, session: AsyncSession, row: Row[Any]) -> bool:
        """Lock a row that still waits; somebody may have decided about it meanwhile."""
        columns = self._books.parked.table.c
        query = (
            select(columns.seq)
            .where(columns.tenant_id == row.tenant_id, columns.parked_id == row.parked_id)
            .where(columns.state == WAITING)
            .with_for_update(skip_locked=True)
        )
        return (await session.execute(query)).first() is not None

    async def _settle(
        self, session: AsyncSession, row: Row[Any], item: InHand, end: End
    ) -> Outcome:
        if not isinstance(end, Trial):
            await self._finish(session, row)
            verdict = self._verdict(end, row.attempts)
            return verdict.outcome if isinstance(verdict, Finish) else "failed"
        attempts, trouble = row.attempts + 1, Trouble.of(end)
        await self._books.attempts.forget(session, [item])
        values: dict[str, Any] = {
            "attempts": attempts,
            "error_class": trouble.error_class,
            "error_message": trouble.message,
        }
        match self._verdict(end, attempts):
            case GiveUp(reason):
                await self._give_up(session, row, reason, values)
                return "parked"
            case Wait(seconds) | Hold(seconds):
                due = self._books.clock.now() + timedelta(seconds=seconds)
                await self._change(session, row, {**values, "due_at": due})
        return "failed"

    def _verdict(self, end: End, attempt: int) -> Verdict:
        return judge(end, attempt=attempt, held_for=0.0, rules=self._rules, chance=self._chance)

    async def _give_up(
        self,
        session: AsyncSession,
        row: Row[Any],
        reason: str,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Park a message that was tried; it goes on holding its key if that is the policy."""
        holds = row.holds_key and self._books.config.on_parked == "hold"
        await self._park(session, row, reason, None, {**(values or {}), "holds_key": int(holds)})

    async def _park(
        self,
        session: AsyncSession,
        row: Row[Any],
        reason: str,
        why: str | None,
        values: dict[str, Any] | None = None,
    ) -> None:
        """Leave a row to a person."""
        changed: dict[str, Any] = {"state": PARKED, "due_at": None, "reason": reason}
        if values is None:
            changed |= {"holds_key": 0, "error_message": why, "error_class": None}
        await self._change(session, row, changed | (values or {}))
        await self._books.parked.go_on(session, row.tenant_id, row.key, self._books.clock.now())

    async def _change(self, session: AsyncSession, row: Row[Any], values: dict[str, Any]) -> None:
        now = self._books.clock.now()
        await self._books.parked.change(session, row, {**values, "last_at": now})

    async def _finish(self, session: AsyncSession, row: Row[Any]) -> None:
        """Take a row away, and let the next of its key go on."""
        books = self._books
        await books.parked.remove(session, row)
        await books.parked.go_on(session, row.tenant_id, row.key, books.clock.now())

    def _item(self, row: Row[Any]) -> InHand | None:
        """Read the message anew; None when nobody here wants it any more."""
        known = None if is_place(row.message_id) else row.message_id
        message = Incoming(row.topic, row.key, row.headers, row.body, row.content_type, known)
        content = self._routes.prepare(message)
        if isinstance(content, Ignored):
            return None
        delivery = Delivery(message, "", row.position or "", redelivered=True, token=None)
        item = in_hand(delivery, content)
        item.attempts = row.attempts
        return item
