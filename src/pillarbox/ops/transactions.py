"""Transactions of operators' calls, on every database that is served."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection, Table, text
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.errors import InvalidEvent, InvalidRequest, TenantMismatch
from pillarbox.event.rules import check_identifier, check_tenant
from pillarbox.schema.tables import outbox_settings, table_in
from pillarbox.tenancy import DEFAULT_TENANT, enter_tenant

T = TypeVar("T")
# An act that was reported as done must not be lost with the database's last moments.
_DURABLE: Final = text("SELECT set_config('synchronous_commit', 'on', true)")


@dataclass(frozen=True, slots=True)
class Transactions:
    """Run a body in a transaction of its own; with `tenant_id`, inside that tenant alone."""

    engine: AsyncEngine
    schema: str | None = None
    tenant_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse names that no database has."""
        if self.schema is not None:
            check_identifier("schema", self.schema)
        if self.tenant_id is not None:
            check_tenant(self.tenant_id)

    async def read(self, body: Callable[[Connection], T]) -> T:
        """Run a body that only reads, in one snapshot.

        With one for each statement, an event that goes on from one state to another between two of
        them would be counted in neither.
        """
        return await self._run(body, "REPEATABLE READ")

    async def write(self, body: Callable[[Connection], T]) -> T:
        """Run a body that writes, and commit it durably; an exception rolls it back."""

        def prepared(connection: Connection) -> T:
            if connection.dialect.name == "postgresql":
                connection.execute(_DURABLE)
            else:
                # SQLite does not wait when a reader turns writer: take the write lock first.
                settings = self.table(outbox_settings)
                connection.execute(settings.update().values(id=settings.c.id))
            return body(connection)

        # Every statement must see what was committed while it waited for a lock.
        return await self._run(prepared, "READ COMMITTED")

    def table(self, table: Table) -> Table:
        """Return a table as it stands in the schema."""
        return table_in(table, self.schema)

    def tenant(self, named: str | None, what: str) -> str:
        """Return the tenant of a call, which stays inside the scope."""
        chosen = named or self.tenant_id or DEFAULT_TENANT
        if self.tenant_id is not None and chosen != self.tenant_id:
            raise TenantMismatch(what, chosen, self.tenant_id)
        return checked_tenant(chosen)

    async def _run(self, body: Callable[[Connection], T], isolation: IsolationLevel) -> T:
        async with self.engine.connect() as connection:
            if self.engine.dialect.name == "postgresql":
                await connection.execution_options(isolation_level=isolation)
            async with connection.begin():
                return await connection.run_sync(self._inside_tenant, body)

    def _inside_tenant(self, connection: Connection, body: Callable[[Connection], T]) -> T:
        if self.tenant_id is not None:
            enter_tenant(connection, self.tenant_id)
        return body(connection)


def checked_tenant(tenant_id: str) -> str:
    """Return a tenant id, or raise `InvalidRequest`."""
    try:
        return check_tenant(tenant_id)
    except InvalidEvent as error:
        raise InvalidRequest(error.field, error.problem, error.remedy) from None
