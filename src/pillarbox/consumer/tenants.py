"""For whom a consumer must look, where the wall between tenants hides their rows from one another."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.transactions import Transactions
from pillarbox.schema.tables import consumer_tenant, table_in

ASIDE: Final = "aside"
"""Something was set aside for the tenant: a message that waits, or a task."""
RECORDS: Final = "records"
"""The inbox has records of the tenant, which grow old."""


class Tenants:
    """Remember the tenants who have rows, and rows of which kind."""

    def __init__(self, consumer: str, transactions: Transactions) -> None:
        self._consumer, self._transactions = consumer, transactions
        self._table = table_in(consumer_tenant, transactions.schema)
        self._walled = transactions.is_walled()
        self._served: set[str] = set()

    async def note(self, session: AsyncSession, tenant_id: str) -> None:
        """Remember a tenant in the transaction that sets something aside for it."""
        await self._write(session, tenant_id, ASIDE)

    async def serve(self, tenant_id: str) -> None:
        """Remember a tenant before its first record, once in a process; needed behind a wall alone.

        In a transaction of its own: others would wait for that of the first batch.
        """
        if self._walled and tenant_id not in self._served:
            async with self._transactions.begin(tenant_id) as session:
                await self._write(session, tenant_id, RECORDS)
            self._served.add(tenant_id)

    async def to_ask(self, kind: str = ASIDE) -> Sequence[str | None]:
        """Return the tenants to look for one by one; without a wall, one look serves all."""
        if not self._walled:
            return [None]
        async with self._transactions.begin(None) as session:
            columns = self._table.c
            mine = (columns.consumer == self._consumer, columns.kind == kind)
            query = select(columns.tenant_id).where(*mine).order_by(columns.tenant_id)
            return list(await session.scalars(query))

    async def _write(self, session: AsyncSession, tenant_id: str, kind: str) -> None:
        dialect = session.sync_session.get_bind().dialect.name
        insert: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
        values = {"consumer": self._consumer, "tenant_id": tenant_id, "kind": kind}
        await session.execute(insert(self._table).values(**values).on_conflict_do_nothing())
