"""What need not be remembered any longer goes: old records of the inbox, and attempts left behind."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import CursorResult, Table
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.batch import Books
from pillarbox.inbox import statements
from pillarbox.inbox.register import CLEANUP_BATCH
from pillarbox.schema.tables import inbox, inbox_attempt
from pillarbox.tenancy import DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many records went, and whether more may be old enough."""

    records: int
    more: bool


class Forgetting:
    """Delete what is older than the retention; several may do so at once, here and elsewhere.

    An attempt stays behind when its message never came again: the broker forgot it, or another
    member finished it as a first delivery.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._age = timedelta(days=books.config.retention_days)

    async def batch(self, tenant_id: str | None) -> Forgotten:
        """Delete some of the oldest of a tenant, or of all, in one short transaction."""
        async with self._books.transactions.begin(tenant_id or DEFAULT_TENANT) as session:
            attempts = await self._delete(session, inbox_attempt, tenant_id)
            records = await self._delete(session, inbox, tenant_id)
        return Forgotten(records, more=CLEANUP_BATCH in (records, attempts))

    async def _delete(self, session: AsyncSession, table: Table, tenant_id: str | None) -> int:
        books = self._books
        dialect = session.sync_session.get_bind().dialect.name
        values: dict[str, Any] = {
            "consumer": books.consumer,
            "cutoff": statements.cutoff_value(dialect, self._age, books.clock.now()),
            "batch": CLEANUP_BATCH,
        }
        if tenant_id is not None:
            values["tenant_id"] = tenant_id
        statement = statements.delete_old(
            dialect, books.transactions.schema, table, of_tenant=tenant_id is not None
        )
        return cast("CursorResult[Any]", await session.execute(statement, values)).rowcount
