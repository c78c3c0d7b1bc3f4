"""Tasks that handlers left to be done after their commit: at least once, and by their names.

A task is taken by letting it be due again only after its limit: no transaction is open while it
runs, and whoever finds it later knows that its process has gone.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, delete, select, update

from pillarbox.consumer.batch import Books
from pillarbox.consumer.context import Task
from pillarbox.consumer.observer import Observer
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.retry import RetryPolicy
from pillarbox.schema.tables import inbox_task
from pillarbox.tenancy import DEFAULT_TENANT
from pillarbox.words import storable, storable_class

log = logging.getLogger("pillarbox.consumer")

LIMIT: Final = timedelta(seconds=60)


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
        limit: timedelta = LIMIT,
    ) -> None:
        self._books, self._tasks, self._observer = books, tasks, observer
        self._chance, self._limit = chance, limit
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
            await self._run(row)
        except Exception as error:  # noqa: BLE001 - a task is the user's code, and comes again
            await self._failed(row, error)
            return False
        await self._done(row)
        return True

    async def _take(self, tenant_id: str | None, due_by: datetime) -> Row[Any] | None:
        columns, now = self._table.c, self._books.clock.now()
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
                taken = {"due_at": now + self._limit, "attempts": columns.attempts + 1}
                await session.execute(update(self._table).where(*self._this(row)).values(**taken))
        return row

    async def _run(self, row: Row[Any]) -> None:
        task = self._tasks.get(row.name)
        if task is None:
            raise UnknownTask(
                f"no task is registered as {row.name!r}; register it, or wait for the process "
                "that has it"
            )
        async with asyncio.timeout(self._limit.total_seconds()):
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
            "error_message": storable(str(error)),
        }
        async with self._books.transactions.begin(row.tenant_id) as session:
            await session.execute(update(self._table).where(*self._this(row)).values(**values))
        self._observer.task_ended(row.name, done=False)

    def _this(self, row: Row[Any]) -> tuple[ColumnElement[bool], ...]:
        columns = self._table.c
        return columns.tenant_id == row.tenant_id, columns.task_id == row.task_id
