"""Whose keys there are, where the wall between tenants hides their rows from the clean-up."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from pillarbox.schema.tables import consumer_tenant, table_in

_COMMANDS: Final = "http commands"  # no consumer's name has a blank
_RECORDS: Final = "records"


class Tenants:
    """Remember, in the database, the tenants who have keys.

    A tenant is noted in the transaction of its key, so that no key is without it, also when the
    process ends at once. It is noted last: who meets another one's first note waits for a commit
    that is about to come.
    """

    def __init__(self, schema: str | None) -> None:
        self._table = table_in(consumer_tenant, schema)
        self._noted: set[str] = set()

    def is_noted(self, connection: Connection, tenant_id: str) -> bool:
        """Say whether this process knows that a tenant is; PostgreSQL alone has a wall."""
        return tenant_id in self._noted or connection.dialect.name != "postgresql"

    def note(self, connection: Connection, tenant_id: str) -> None:
        """Remember a tenant, unless that is known."""
        if self.is_noted(connection, tenant_id):
            return
        values = {"consumer": _COMMANDS, "tenant_id": tenant_id, "kind": _RECORDS}
        connection.execute(insert(self._table).values(**values).on_conflict_do_nothing())

    def committed(self, tenant_id: str) -> None:
        """Be told that the transaction of a note has committed."""
        self._noted.add(tenant_id)

    def known(self, connection: Connection) -> Sequence[str]:
        """Return the tenants who have or had keys."""
        columns = self._table.c
        mine = (columns.consumer == _COMMANDS, columns.kind == _RECORDS)
        query = select(columns.tenant_id).where(*mine).order_by(columns.tenant_id)
        return connection.execute(query).scalars().all()
