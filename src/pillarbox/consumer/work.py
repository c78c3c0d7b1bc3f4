"""A batch of one tenant in one transaction: claimed, handled, committed; or, failing that, in parts.

At first the handlers of a batch run one after the other without savepoints. When one of them fails,
all is rolled back and done again with a savepoint for each, and when that fails as a whole (at the
commit, say), each message gets a transaction of its own. So a good batch costs few round trips, and
a bad message costs only itself. Slow handlers make a batch shorter: what there is no time for is not
begun, and comes with the next one.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.batch import CLAIMED, FINISHED, Batch, Books, Ends
from pillarbox.consumer.claiming import claim, sort_out
from pillarbox.consumer.context import Context
from pillarbox.consumer.fate import is_undone
from pillarbox.consumer.lane import InHand, Line
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.routes import Prepared
from pillarbox.consumer.signals import LONGEST_WAIT, Drop, NotNow, Park, Retry
from pillarbox.consumer.transactions import DatabaseAway, untimed
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.consumer.verdict import (
    Applied,
    AskedToPark,
    AskedToWait,
    Crashed,
    Dropped,
    End,
    Failed,
    Suspected,
    Untouched,
)
from pillarbox.errors import ContentMismatch, UnitOfWorkError
from pillarbox.uow.joining import joined_transaction
from pillarbox.words import words_of

log = logging.getLogger("pillarbox.consumer")

Handling = Callable[[Batch], Awaitable[None]]

_LEAST: Final = 1.0
"""Seconds that the handlers of a batch have in any case, however short the hold limit is."""

_SAVEPOINT_GONE: Final = (
    "the handler ended the savepoint that it runs in, or left one of its own open; end what you "
    "begin, and leave commit and rollback of ctx.session to the consumer"
)


class _Spoiled(Exception):
    """A handler failed where its effects cannot be undone alone; the cause says how."""


class Work:
    """Do batches: between the lanes and the database."""

    def __init__(self, books: Books, observer: Observer, now: Callable[[], float]) -> None:
        self._books, self._observer, self._now = books, observer, now

    async def do(self, items: Sequence[InHand], *, careful: bool = False) -> Ends:
        """Do messages of one tenant, and say what became of each.

        What is said to be applied is committed. `careful` gives each handler a savepoint at once.
        Raise `DatabaseAway` when it is not known what became of them.
        """
        ends = await self.begin(items)
        todo = [item for item in items if item not in ends]
        if not todo:
            return ends
        if not careful and len(todo) > 1 and not any(item.attempts for item in todo):
            try:
                return ends | await self._together(todo, self._plainly)
            except DatabaseAway:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
                # Nothing of it is committed: it is done again, with a savepoint for each.
                log.debug("batch_undone", extra={"error_class": type(error).__name__})
        try:
            return ends | await self._together(todo, self._in_savepoints)
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
            if len(todo) == 1:
                return ends | {todo[0]: end_of_undone(error)}
            return ends | await self._one_by_one(todo)

    async def begin(self, items: Sequence[InHand]) -> Ends:
        """Mark what was delivered before; say which messages must not be tried now."""
        again = [i for i in items if i.delivery.redelivered and i.envelope and not i.marked]
        if not again:
            return {}
        books = self._books
        async with books.transactions.begin(items[0].tenant_id) as session:
            marks = await books.attempts.begin(session, again, books.clock.now())
            ends: Ends = {
                **dict.fromkeys(marks.suspected, Suspected()),
                **dict.fromkeys(marks.killers, Crashed()),
            }
            for item in again:
                # Before the commit: if its answer is lost, a mark that is there is our own.
                item.marked = item not in ends
        lines = {item.line for item in ends}
        behind = [item for item in items if item.line in lines and item not in ends]
        return ends | dict.fromkeys(behind, Untouched())

    async def handle(
        self, session: AsyncSession, items: Sequence[InHand], *, plainly: bool
    ) -> Batch:
        """Claim and handle messages of one tenant in a transaction that somebody else has begun.

        Whoever commits it lets the batch `tell` afterwards. `plainly`, no handler has a savepoint:
        raise if one fails.
        """
        batch = await Batch.of(self._books, session)
        await claim(batch, items)
        await (self._plainly(batch) if plainly else self._in_savepoints(batch))
        await batch.close()
        return batch

    async def _together(self, todo: Sequence[InHand], handling: Handling) -> Ends:
        """Do messages in one transaction; those of another content than before are set aside."""
        mismatched: set[str] = set()
        while True:
            try:
                return await self._transact(todo, handling, mismatched)
            except ContentMismatch as found:
                if found.message_id in mismatched:
                    raise
                mismatched.add(found.message_id)

    async def _transact(
        self, todo: Sequence[InHand], handling: Handling, mismatched: set[str]
    ) -> Ends:
        await self._books.tenants.serve(todo[0].tenant_id)
        async with self._books.transactions.begin(todo[0].tenant_id) as session:
            batch = await Batch.of(self._books, session)
            await claim(batch, await sort_out(batch, todo), mismatched)
            await handling(batch)
            await batch.close()
        batch.tell()
        return batch.ends

    async def _one_by_one(self, todo: Sequence[InHand]) -> Ends:
        ends: Ends = {}
        stopped: set[Line] = set()
        for item in self._while_time_lasts(todo, ends):
            if item.line in stopped:
                ends[item] = Untouched()
                continue
            try:
                ends |= await self._together([item], self._in_savepoints)
            except DatabaseAway:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a handler or a commit may raise
                ends[item] = end_of_undone(error)
            if not isinstance(ends[item], FINISHED):
                stopped.add(item.line)
        return ends

    def _while_time_lasts(self, items: Sequence[InHand], ends: Ends) -> Iterator[InHand]:
        """Yield messages, the first in any case; leave those untouched for which no time is left.

        A broker takes messages back from whoever holds them for too long, and a partition that goes
        to another member does not wait for a whole batch: all of it would be undone, each time.
        """
        latest = self._now() + max(self._books.config.hold_limit / 2, _LEAST)
        for number, item in enumerate(items):
            if number and self._now() >= latest:
                ends.update(dict.fromkeys(items[number:], Untouched()))
                return
            yield item

    async def _plainly(self, batch: Batch) -> None:
        """Run the handlers one after the other; if one fails, all of them go."""
        try:
            for item in self._while_time_lasts(batch.to_handle, batch.ends):
                await self._call(batch, item)
            await batch.session.flush()
            await batch.refuse_aborted()
        except Exception as error:
            raise _Spoiled from error
        batch.ends.update(dict.fromkeys(batch.to_handle, Applied()))

    async def _in_savepoints(self, batch: Batch) -> None:
        """Run each handler in a savepoint; nothing of a line goes on behind one that failed."""
        stopped: set[Line] = set()
        for item in self._while_time_lasts(batch.to_handle, batch.ends):
            if item.line in stopped:
                batch.ends[item] = Untouched()
                continue
            end = batch.ends[item] = await self._in_savepoint(batch, item)
            if not isinstance(end, CLAIMED):
                stopped.add(item.line)

    async def _in_savepoint(self, batch: Batch, item: InHand) -> End:
        tasks, told = len(batch.tasks), len(batch.told)
        whole = True  # also if the savepoint itself is refused
        try:
            async with batch.session.begin_nested() as nested:
                try:
                    await self._call(batch, item)
                finally:
                    session = batch.session.sync_session
                    whole = session.get_nested_transaction() is nested.sync_transaction
                _refuse_other_savepoints(whole)
        except Exception as error:
            if batch.connection.invalidated and not batch.fate.given_up:
                raise DatabaseAway(error) from error
            if batch.connection.invalidated or is_undone(batch.connection) or not whole:
                raise _Spoiled from error
            del batch.tasks[tasks:], batch.told[told:]
            return end_of(error)
        return Applied()

    async def _call(self, batch: Batch, item: InHand) -> None:
        """Call a handler, inside the transaction that units of work join."""
        content = item.content
        if not isinstance(content, Prepared):
            raise TypeError("only a message that was read has a handler")
        context = Context(
            consumer=self._books.consumer,
            envelope=content.envelope,
            attempt=item.attempts + 1,
            session=batch.session,
        )
        began = self._now()
        try:
            async with joined_transaction(batch.session):
                with answering_for_itself(), untimed(batch.session):
                    await content.handler(context)
            batch.refuse_undone()
        finally:
            took = timedelta(seconds=self._now() - began)
            self._observer.handled(content.envelope.event_type, took)
        batch.tasks += [(item, task) for task in context.tasks]
        batch.told += context.told


def end_of_undone(error: BaseException) -> End:
    """Say what a try came to whose transaction is gone, and the claim of its message with it.

    What was dropped is acknowledged, and without its claim a second copy would take effect.
    """
    cause = error.__cause__ if isinstance(error, _Spoiled) else None
    raised = error if cause is None else cause
    end = end_of(raised)
    return Failed(type(raised).__name__, end.reason) if isinstance(end, Dropped) else end


def end_of(error: BaseException) -> End:
    """Say what a try came to that raised, and that was undone alone."""
    match error:
        # A subclass that does not call ours may lack its parts, and is then an error like others.
        case NotNow(after=timedelta()):
            return Untouched(_bounded(error.after))
        case Retry(after=timedelta(), reason=str()):
            return AskedToWait(_bounded(error.after), error.reason)
        case Park(reason=str()):
            return AskedToPark(error.reason)
        case Drop(reason=str()):
            return Dropped(error.reason)
        case _:
            return Failed(type(error).__name__, words_of(error))


def _bounded(after: timedelta) -> timedelta:
    """Return a time that the calendar has room for: a subclass may have skipped the check."""
    return min(max(after, timedelta(0)), LONGEST_WAIT)


def _refuse_other_savepoints(whole: bool) -> None:
    if not whole:
        raise UnitOfWorkError(_SAVEPOINT_GONE)
