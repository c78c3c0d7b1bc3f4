"""Sagas whose time is up, and those that an operator wishes something of: due rows, taken in batches.

No process keeps a clock or a timer: the database says what is due. A batch takes what nobody else
has, in one transaction with a savepoint for each saga, so that one that fails does not hold up the
others. One that closes the connection, or ends the transaction, undoes the batch: it is put off
untried, and the sagas after it have a transaction each, so that no end runs again for each of those.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.batch import Books, store_tasks
from pillarbox.consumer.context import Context, Tell
from pillarbox.consumer.fate import fate_of, is_undone
from pillarbox.consumer.handlers import belonging_to
from pillarbox.consumer.transactions import DatabaseAway, is_away_under, untimed
from pillarbox.consumer.user_code import answering_for_itself
from pillarbox.errors import SagaError, UnitOfWorkError
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
_SAVEPOINT_GONE: Final = (
    "the end of the saga ended the transaction or the savepoint that it runs in, or left one of its "
    "own open; end what you begin, and leave commit and rollback of ctx.session to the saga"
)


class _GivenUp(Exception):
    """Code of a saga has undone its batch: it closed the connection, or ended the transaction."""

    def __init__(self, saga_id: UUID, error: Exception) -> None:
        super().__init__(str(saga_id))
        self.saga_id, self.error = saga_id, error


class Timers:
    """Look for sagas that are due: a chore of their consumer."""

    def __init__(self, carrying: Carrying, batch: int = BATCH) -> None:
        self._carrying, self._batch = carrying, batch
        self._singly: dict[str, int] = {}
        """How many sagas of a tenant have a transaction each, since one has undone its batch."""

    async def look(self, books: Books, tenant_id: str | None) -> bool:
        """Take a batch of one tenant; without one named, of whoever has waited longest."""
        tenant = tenant_id or await self._next_tenant(books)
        if tenant is None:
            return False
        singly = self._singly.pop(tenant, 0)
        if singly > 1:
            self._singly[tenant] = singly - 1
        try:
            return await self._take(books, tenant, 1 if singly else self._batch)
        except _GivenUp as found:
            self._singly[tenant] = self._batch
            await self._put_off_untried(books, tenant, found)
            return True

    async def _take(self, books: Books, tenant: str, most: int) -> bool:
        store, told = self._carrying.store, list[Tell]()
        async with books.transactions.begin(tenant) as session:
            rows = await store.due(session, tenant, most)
            for row in rows:
                told += await self._ring(books, session, row)
        self._tell(len(rows), told)
        return bool(rows)

    async def _put_off_untried(self, books: Books, tenant: str, found: _GivenUp) -> None:
        """Put off the saga that has undone its batch, unless somebody else has it by now."""
        store, told = self._carrying.store, list[Tell]()
        async with books.transactions.begin(tenant) as session:
            rows = await store.due(session, tenant, 1, saga_id=found.saga_id)
            for row in rows:
                told += await self._put_off(books, session, row, found.error)
        self._tell(len(rows), told)

    def _tell(self, rang: int, told: Sequence[Tell]) -> None:
        """Say, once a transaction is committed, what came of it."""
        if rang:
            self._carrying.observer.rang(self._carrying.store.name, rang)
        for tell in told:
            tell()

    async def _next_tenant(self, books: Books) -> str | None:
        async with books.transactions.begin(DEFAULT_TENANT) as session:
            return await self._carrying.store.next_tenant(session)

    async def _ring(self, books: Books, session: AsyncSession, row: Row[Any]) -> list[Tell]:
        """Let one saga go on; what goes wrong is written into its row instead."""
        connection = await session.connection()
        fate = fate_of(connection)
        whole = True  # also if the savepoint itself is refused
        try:
            async with session.begin_nested() as nested:
                try:
                    told = await self._go_on(books, session, row)
                finally:
                    within = session.sync_session.get_nested_transaction()
                    whole = within is nested.sync_transaction
                _refuse_other_savepoints(whole)
        except Exception as error:
            if is_away_under(connection, fate):
                raise DatabaseAway(error) from error
            if connection.invalidated or is_undone(connection) or not whole:
                raise _GivenUp(row.saga_id, error) from error
            return await self._put_off(books, session, row, error)
        return told

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


def _refuse_other_savepoints(whole: bool) -> None:
    if not whole:
        raise UnitOfWorkError(_SAVEPOINT_GONE)
