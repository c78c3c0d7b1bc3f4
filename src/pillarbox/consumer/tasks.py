"""Tasks that handlers left to be done after their commit: at least once, and by their names.

A task is taken by letting it be due again a little later, and prolonging that while it runs: no
transaction is open meanwhile, and whoever finds it due knows that its process has gone.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, delete, select, update

from pillarbox.consumer.batch import Books
from pillarbox.consumer.context import Task
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.transactions import DatabaseAway
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.retry import RetryPolicy
from pillarbox.schema.tables import inbox_task
from pillarbox.tenancy import DEFAULT_TENANT
from pillarbox.words import storable, storable_class, words_of

log = logging.getLogger("pillarbox.consumer")

LIMIT: Final = timedelta(seconds=60)
HELD: Final = timedelta(seconds=10)
"""How long a task is not due after its process was heard of."""
_SIGNS: Final = 3


class UnknownTask(Exception):
    """A stored task has a name that this process has not registered."""


class StoredTasks:
    """Do tasks, one at a time; several may do so at once, here and elsewhere."""

    def __init__(
        self,
        books: Books,
        tasks: Mapping[str, Task],
        observer: Observer,
        chance: random.Random,
    ) -> None:
        self._books, self._tasks, self._observer = books, tasks, observer
        self._chance = chance
        self._table = books.transactions.table(inbox_task)
        config = books.config
        self._retry = RetryPolicy(10**9, config.retry_delay, config.retry_delay_max)

    async def look(self, tenant_id: str | None, due_by: datetime) -> bool | None:
        """Do the next task of a tenant, or of all, that was due by then; None when none was.

        False when it failed: it comes again later.
        """
        row = await self._take(tenant_id, due_by)
        if row is None:
            return None
        try:
            async with self._held_on_to(row):
                await self._run(row)
        except Exception as error:  # noqa: BLE001 - a task is the user's code, and comes again
            await self._failed(row, error)
            return False
        await self._done(row)
        return True

    async def _take(self, tenant_id: str | None, due_by: datetime) -> Row[Any] | None:
        columns = self._table.c
        query = (
            select(self._table)
            .where(columns.consumer == self._books.consumer, columns.due_at <= due_by)
            .order_by(columns.due_at)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if tenant_id is not None:
            query = query.where(columns.tenant_id == tenant_id)
        async with self._books.transactions.begin(tenant_id or DEFAULT_TENANT) as session:
            row = (await session.execute(query)).first()
            if row is not None:
                taken = {"due_at": self._later(), "attempts": columns.attempts + 1}
                await session.execute(update(self._table).where(*self._this(row)).values(**taken))
        return row

    @asynccontextmanager
    async def _held_on_to(self, row: Row[Any]) -> AsyncIterator[None]:
        """Keep a task from being due for as long as the block runs."""
        over = asyncio.Event()
        holding = asyncio.ensure_future(self._hold_on_to(row, over))
        try:
            yield
        except asyncio.CancelledError:
            holding.cancel()  # its statement may wait for a database that has gone silent
            await asyncio.wait({holding})
            raise
        finally:
            over.set()  # not cancelled: a statement of its own is answered first
            try:
                await asyncio.wait({holding})
            except asyncio.CancelledError:
                holding.cancel()
                raise
            if not holding.cancelled() and (error := holding.exception()):
                log.warning("task_not_held", extra={"task": row.name, "error": words_of(error)})

    async def _hold_on_to(self, row: Row[Any], over: asyncio.Event) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD.total_seconds() / _SIGNS):
                    await over.wait()
                return
            with suppress(DatabaseAway):  # then another process may do it, too
                async with self._books.transactions.begin(row.tenant_id) as session:
                    held = update(self._table).where(*self._this(row)).values(due_at=self._later())
                    await session.execute(held)

    def _later(self) -> datetime:
        return self._books.clock.now() + HELD

    async def _run(self, row: Row[Any]) -> None:
        task = self._tasks.get(row.name)
        if task is None:
            raise UnknownTask(
                f"no task is registered as {row.name!r}; register it, or wait for the process "
                "that has it"
            )
        alone = self._books.transactions.alone()
        async with asyncio.timeout(LIMIT.total_seconds()), alone:
            with answering_for_itself():
                running = task.function(**row.arguments)
                if running is not None:
                    await running

    async def _done(self, row: Row[Any]) -> None:
        async with self._books.transactions.begin(row.tenant_id) as session:
            await session.execute(delete(self._table).where(*self._this(row)))
        self._observer.task_ended(row.name, done=True)

    async def _failed(self, row: Row[Any], error: Exception) -> None:
        """Let a task come again, however often."""
        seconds = self._retry.after(row.attempts + 1, self._chance) or 0.0
        name = type(error).__name__
        log.warning(
            "task_failed",
            extra={"task": row.name, "attempt": row.attempts + 1, "error_class": name},
        )
        values = {
            "due_at": self._books.clock.now() + timedelta(seconds=seconds),
            "error_class": storable_class(name),
            "error_message": storable(words_of(error)),
        }
        async with self._books.transactions.begin(row.tenant_id) as session:
            await session.execute(update(self._table).where(*self._this(row)).values(**values))
        self._observer.task_ended(row.name, done=False)

    def _this(self, row: Row[Any]) -> tuple[ColumnElement[bool], ...]:
        columns = self._table.c
        return columns.tenant_id == row.tenant_id, columns.task_id == row.task_id
