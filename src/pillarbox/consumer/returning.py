"""Waiting messages come back: the head of a key, when it is due, with those behind it.

Taking marks the messages of a key as begun with, and lets the head be due a little later: that is
how long it takes until another process tries again, should this one die before it has the rows in
the handlers' transaction. From then on the rows' locks keep others away. Whoever comes too late finds
another time at the head, and leaves it to the one who has taken it since. The messages of a key are
handled in one transaction with the removal of their rows, as a lane handles a batch: plainly, then
with a savepoint for each, then the head alone.
"""

import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.aside import move
from pillarbox.consumer.batch import Books, Ends
from pillarbox.consumer.identity import message_from
from pillarbox.consumer.lane import InHand, in_hand
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.parked import WAITING, Standing
from pillarbox.consumer.return_rows import Pair, ReturnRows
from pillarbox.consumer.routes import Ignored, Prepared, Routes
from pillarbox.consumer.transactions import DatabaseAway, untimed
from pillarbox.consumer.verdict import CONTENT_MISMATCH, CRASHED, Outcome, Untouched
from pillarbox.consumer.work import Work, end_of_undone
from pillarbox.errors import ContentMismatch
from pillarbox.event.incoming import Unreadable
from pillarbox.tenancy import DEFAULT_TENANT

log = logging.getLogger("pillarbox.consumer")

_LEASE: Final = timedelta(seconds=5)
# Whoever must be alone waits for all others first, and must not be overtaken each time.
_PATIENCE: Final = timedelta(minutes=1)
_MOST_BYTES: Final = 4_194_304
# More than a batch: what comes to another tenant's key between two parts of a line passes the second.
_MOST_MOVED: Final = 1_000
_LEFT: Final = Untouched()


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages of one key that are to be handled now; none, when the look itself settled it.

    `alone` says that a process died over the first: it must have this one for itself. `until` is
    when it is due for others; as long as its row says so, nobody else has had it.
    """

    pairs: Sequence[Pair] = ()
    alone: bool = False
    until: datetime | None = None

    @property
    def head(self) -> Row[Any]:
        """The row that was due."""
        return self.pairs[0][0]

    @property
    def items(self) -> list[InHand]:
        """The messages, in their order."""
        return [item for _, item in self.pairs]

    @property
    def goes_home(self) -> bool:
        """Whether they are another tenant's than that of their rows."""
        row, item = self.pairs[0]
        return bool(item.tenant_id != row.tenant_id)


class Returning:
    """Bring messages back; several may do so at once, here and elsewhere."""

    def __init__(
        self, books: Books, routes: Routes, work: Work, observer: Observer, chance: random.Random
    ) -> None:
        self._books, self._routes, self._work = books, routes, work
        self._observer, self._rows = observer, ReturnRows(books, chance)
        self._out: dict[UUID, Taken] = {}
        self._unfinished: list[Taken] = []

    async def take(self, tenant_id: str | None) -> Taken | None:
        """Take the next key that is due, of a tenant or of all; None when none is.

        Whoever gets messages brings them back.
        """
        await self.give_back()
        books, now = self._books, self._books.clock.now()
        async with self._marking(tenant_id or DEFAULT_TENANT) as (session, begun):
            row = (await session.execute(books.parked.due(now, tenant_id, self._out))).first()
            if row is None:
                return None
            taken = await self._keep(session, await self._begin(session, row, now), now)
            begun.append(taken)
        if taken.pairs:
            self._out[row.parked_id] = taken
        return taken

    async def bring_back(self, taken: Taken) -> None:
        """Handle messages that were taken; remember them if they were not finished."""
        found, settled, row = taken, taken.alone, taken.head
        try:
            if taken.alone:
                found = await self._begin_alone(taken)
            settled = not found.pairs
            if not settled:
                settled = await self._finish(found)
        finally:
            self._out.pop(row.parked_id, None)
            if not settled:
                self._unfinished.append(found)

    async def leave(self) -> None:
        """Give back all that was taken, also what nobody has come to; nothing is being handled."""
        self._unfinished += [taken for taken in self._out.values() if not taken.alone]
        self._out.clear()
        await self.give_back()

    async def give_back(self) -> None:
        """Say that this process did not die over messages which it began with and did not finish.

        The database went away under them, or the consumer was stopped. They are due as before.
        """
        while self._unfinished:
            taken = self._unfinished.pop()
            try:
                await self._unmark(taken)
            except BaseException:
                self._unfinished.append(taken)
                raise

    async def _begin(
        self, session: AsyncSession, row: Row[Any], now: datetime, *, alone: bool = False
    ) -> Taken:
        """Mark a due message and those behind it; settle at once what is not to be tried."""
        attempts, item = self._books.attempts, self._item(session, row)
        if item is None:
            await self._rows.finish(session, [row])
            return Taken()
        if isinstance(item.content, Unreadable):
            await self._rows.park(session, row, item.content.code, item.content.reason)
            return Taken()
        if item.tenant_id != row.tenant_id:
            return Taken(await self._behind(session, row, item, _MOST_MOVED))
        pairs = [(row, item)] if alone else await self._line(session, row, item)
        item.alone = alone
        marks = await attempts.begin(session, [found for _, found in pairs], now)
        if marks.killers:
            await attempts.forget(session, [item])  # else no redrive would be tried
            await self._rows.give_up(session, row, CRASHED)
            return Taken()
        return Taken(pairs, alone=bool(marks.suspected))

    async def _line(self, session: AsyncSession, row: Row[Any], item: InHand) -> Sequence[Pair]:
        """Return a head with those behind it that can be handled in one transaction with it.

        A message that failed, or that a process died over, is not among others.
        """
        most = 1 if item.attempts else self._books.config.batch_size
        pairs = await self._behind(session, row, item, most)
        if len(pairs) == 1:
            return pairs
        begun = await self._books.attempts.begun(session, [found for _, found in pairs])
        left = (n for n, (_, found) in enumerate(pairs) if found in begun or found.attempts)
        return pairs[: max(next(left, len(pairs)), 1)]

    async def _behind(
        self, session: AsyncSession, row: Row[Any], item: InHand, most: int
    ) -> Sequence[Pair]:
        """Return a head with those behind it that read as of its line; no more than so many."""
        pairs = [(row, item)]
        if most == 1 or not row.holds_key or row.key is None:
            return pairs
        for found in await self._books.parked.behind(session, row, most - 1, _MOST_BYTES):
            behind = self._item(session, found)
            if behind is None or not isinstance(behind.content, Prepared):
                break
            if behind.line != item.line:
                break
            pairs.append((found, behind))
        return pairs

    async def _begin_alone(self, taken: Taken) -> Taken:
        """Mark a message that has the process for itself; nothing, if somebody else has it."""
        now = self._books.clock.now()
        async with self._marking(taken.head.tenant_id) as (session, begun):
            if not await self._rows.lock(session, taken.pairs, taken.until):
                return Taken()
            found = await self._begin(session, taken.head, now, alone=True)
            begun.append(await self._keep(session, found, now))
        return begun[0]

    async def _keep(self, session: AsyncSession, taken: Taken, now: datetime) -> Taken:
        """Let messages be due for others only when we had time to lock them."""
        if not taken.pairs:
            return taken
        until = now + (_PATIENCE if taken.alone else _LEASE)
        await self._books.parked.change(session, taken.head, {"due_at": until})
        return replace(taken, until=until)

    @asynccontextmanager
    async def _marking(self, tenant_id: str) -> AsyncIterator[tuple[AsyncSession, list[Taken]]]:
        """Run a transaction that marks; what has begun is given back if its commit is not answered.

        The marks may be there, and this process would take them for those of one that died.
        """
        begun: list[Taken] = []
        try:
            async with self._books.transactions.begin(tenant_id) as session:
                yield session, begun
        except BaseException:
            # One that must be alone has no mark of ours yet.
            self._unfinished += [taken for taken in begun if taken.pairs and not taken.alone]
            raise

    async def _unmark(self, taken: Taken) -> None:
        books, row = self._books, taken.head
        # What goes to another tenant was not begun with.
        marked = () if taken.goes_home else taken.pairs
        async with books.transactions.begin(row.tenant_id) as session:
            if not await self._rows.lock(session, taken.pairs[:1], taken.until):
                # Somebody else has the head by now, and has not come to those behind it.
                left = await self._rows.still_behind(session, marked[1:])
                await books.attempts.unmark(session, left)
                return
            await books.attempts.unmark(session, [item for _, item in marked])
            await books.parked.change(session, row, {"due_at": row.due_at})

    async def _send_home(self, taken: Taken) -> None:
        """Move messages that name another tenant by now into that one, all at once.

        No transaction reaches both tenants: after a crash they are in both, and take effect once. What
        is behind them comes after them, here and there.
        """
        books, row, (item, *_) = self._books, taken.head, taken.items
        holds = bool(row.holds_key) and item.key is not None
        due = Standing(WAITING, row.reason, holds_key=holds, due_at=books.clock.now())
        await move(books, taken.items, due)
        async with books.transactions.begin(row.tenant_id) as session:
            moved = await self._rows.lock(session, taken.pairs, taken.until)
            await self._rows.finish(session, [found for found, _ in moved])

    async def _finish(self, taken: Taken) -> bool:
        """Handle messages together, or as many of them as go; False when nothing was to be had."""
        pairs = taken.pairs
        if taken.goes_home:
            await self._send_home(taken)
            return True
        for plainly in (True, False) if len(pairs) > 1 else ():
            try:
                return await self._together(pairs, taken, plainly=plainly)
            except DatabaseAway:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
                # Nothing of it is committed: it is done again, in smaller parts.
                log.debug("return_undone", extra={"error_class": type(error).__name__})
        return await self._head(taken)

    async def _together(self, pairs: Sequence[Pair], taken: Taken, *, plainly: bool) -> bool:
        """Handle messages in one transaction with their rows; take the marks of the rest back."""
        async with self._books.transactions.begin(taken.head.tenant_id) as session:
            locked = await self._rows.lock(session, pairs, taken.until)
            if not locked:
                return False
            items = [item for _, item in locked]
            batch = await self._work.handle(session, items, plainly=plainly)
            outcomes = await self._rows.settle(session, locked, batch.ends)
            left = [i for i in taken.items if isinstance(batch.ends.get(i, _LEFT), Untouched)]
            await self._books.attempts.unmark(session, left)
        batch.tell()
        self._tell(outcomes)
        return True

    async def _head(self, taken: Taken) -> bool:
        """Handle the first message alone; a failure is written in another transaction."""
        books, (row, item) = self._books, taken.pairs[0]
        try:
            return await self._together(taken.pairs[:1], taken, plainly=False)
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
            async with books.transactions.begin(row.tenant_id) as session:
                if not await self._rows.lock(session, taken.pairs[:1], taken.until):
                    return False
                await books.attempts.unmark(session, taken.items[1:])
                outcomes: Sequence[Outcome] = ["parked"]
                if isinstance(error, ContentMismatch):
                    await books.attempts.forget(session, [item])
                    await self._rows.park(session, row, CONTENT_MISMATCH, str(error))
                else:
                    ends: Ends = {item: end_of_undone(error)}
                    outcomes = await self._rows.settle(session, taken.pairs[:1], ends)
        self._tell(outcomes)
        return True

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._observer.returned(outcome)

    def _item(self, session: AsyncSession, row: Row[Any]) -> InHand | None:
        """Read the message anew; None when nobody here wants it any more."""
        message = message_from(row)
        with untimed(session):  # upcasters and models are the user's
            content = self._routes.prepare(message)
        if isinstance(content, Ignored):
            return None
        delivery = Delivery(message, "", row.position or "", redelivered=True, token=None)
        item = in_hand(delivery, content)
        item.attempts = row.attempts
        return item
