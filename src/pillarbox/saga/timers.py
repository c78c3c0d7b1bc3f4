"""Sagas whose time is up, and those that an operator wishes something of: due rows, taken in batches.

No process keeps a clock or a timer: the database says what is due. A batch takes what nobody else
has, in one transaction with a savepoint for each saga, so that one that fails does not hold up the
others.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.batch import Books, store_tasks
from pillarbox.consumer.context import Context, Tell
from pillarbox.consumer.fate import fate_of
from pillarbox.consumer.handlers import belonging_to
from pillarbox.consumer.transactions import DatabaseAway, is_away_under, untimed
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.errors import SagaError
from pillarbox.inbox.identity import stored_id
from pillarbox.retry import RetryPolicy
from pillarbox.saga.carrying import Carrying, spread
from pillarbox.saga.machine import State, timed_out
from pillarbox.tenancy import DEFAULT_TENANT
from pillarbox.uow.joining import joined_transaction

log = logging.getLogger("pillarbox.saga")

BATCH: Final = 50
# Another process may have the version that this one misses, or will after the next deployment.
_LATER: Final = timedelta(seconds=30)


class _GivenUp(Exception):
    """Code of a saga has closed the connection: the next transaction puts it off, untried."""

    def __init__(self, saga_id: UUID, error: Exception) -> None:
        super().__init__(str(saga_id))
        self.saga_id, self.error = saga_id, error


class Timers:
    """Look for sagas that are due: a chore of their consumer."""

    def __init__(self, carrying: Carrying, batch: int = BATCH) -> None:
        self._carrying, self._batch = carrying, batch

    async def look(self, books: Books, tenant_id: str | None) -> bool:
        """Take a batch of one tenant; without one named, of whoever has waited longest."""
        tenant = tenant_id or await self._next_tenant(books)
        if tenant is None:
            return False
        given_up: dict[UUID, Exception] = {}
        while True:
            try:
                return await self._take(books, tenant, given_up)
            except _GivenUp as found:
                given_up[found.saga_id] = found.error

    async def _take(self, books: Books, tenant: str, given_up: Mapping[UUID, Exception]) -> bool:
        carrying, told = self._carrying, list[Tell]()
        async with books.transactions.begin(tenant) as session:
            rows = await carrying.store.due(session, tenant, self._batch)
            for row in rows:
                untried = given_up.get(row.saga_id)
                if untried is None:
                    told += await self._ring(books, session, row)
                else:
                    told += await self._put_off(books, session, row, untried)
        if rows:
            carrying.observer.rang(carrying.store.name, len(rows))
        for tell in told:
            tell()
        return bool(rows)

    async def _next_tenant(self, books: Books) -> str | None:
        async with books.transactions.begin(DEFAULT_TENANT) as session:
            return await self._carrying.store.next_tenant(session)

    async def _ring(self, books: Books, session: AsyncSession, row: Row[Any]) -> list[Tell]:
        """Let one saga go on; what goes wrong is written into its row instead."""
        connection = await session.connection()
        fate = fate_of(connection)
        try:
            async with session.begin_nested():
                return await self._go_on(books, session, row)
        except Exception as error:
            if is_away_under(connection, fate, error):
                raise DatabaseAway(error) from error
            if connection.invalidated:
                raise _GivenUp(row.saga_id, error) from error
            return await self._put_off(books, session, row, error)

    async def _go_on(self, books: Books, session: AsyncSession, row: Row[Any]) -> list[Tell]:
        carrying = self._carrying
        held = await carrying.store.whole(session, row)
        ctx = Context(consumer=books.consumer, envelope=held.start, session=session)
        async with joined_transaction(session):
            mine = belonging_to(held.start, walled=books.transactions.is_walled())
            with mine, answering_for_itself(), untimed(session):
                if held.wish is not None:
                    await carrying.wish(ctx, held)
                else:
                    move = timed_out(carrying.definition_of(held).plan, held.progress)
                    await carrying.carry_out(ctx, held, move)
        await session.flush()
        if ctx.tasks:
            tasks = [(stored_id(held.start.event_id), task) for task in ctx.tasks]
            await store_tasks(books, session, held.tenant_id, tasks)
            ctx.told.append(books.tasks_stored.set)
        return ctx.told

    async def _put_off(
        self, books: Books, session: AsyncSession, row: Row[Any], error: Exception
    ) -> list[Tell]:
        """Look again later; a saga that fails as often as a message may is STUCK."""
        carrying, config = self._carrying, books.config
        log.warning(
            "saga_not_moved",
            extra={"saga_id": str(row.saga_id), "error_class": type(error).__name__},
        )
        failures = row.failures + 1
        retry = RetryPolicy(config.max_attempts, config.retry_delay, config.retry_delay_max)
        seconds = retry.after(failures, carrying.chance)
        told: list[Tell] = [lambda: carrying.observer.troubled(row.name, error)]
        if isinstance(error, SagaError):
            # It is not the saga's fault, so nothing counts.
            await carrying.store.put_off(session, row, error, spread(_LATER, carrying.chance))
        elif seconds is not None:
            wait = timedelta(seconds=seconds)
            await carrying.store.put_off(session, row, error, wait, failures=failures)
        else:
            await carrying.store.put_off(session, row, error, None, state=State.STUCK, wish=None)
            told.append(lambda: carrying.observer.stood(row.name, State.STUCK))
        return told
