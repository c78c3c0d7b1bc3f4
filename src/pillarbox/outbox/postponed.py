"""An event's row that is no statement of its own, but goes with a later one of its transaction."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from sqlalchemy import CTE, Connection, column

from pillarbox.outbox.row import EventRow
from pillarbox.outbox.write import INSERT_ONE, RECORDED, values_of_one, write_events


class PostponedEvent(NamedTuple):
    """One event of a transaction on PostgreSQL, checked, and still to be written."""

    row: EventRow
    schema: str | None

    @classmethod
    def of(
        cls, connection: Connection, rows: Sequence[EventRow], schema: str | None
    ) -> Self | None:
        """Return the only event of a transaction; None if it must be written now.

        That is so for an id of the caller's own, which may stand in the table already, inside a
        savepoint, which may be undone alone, and where somebody wants to hear of it.
        """
        if len(rows) != 1 or rows[0].given_id or connection.dialect.name != "postgresql":
            return None
        if connection.in_nested_transaction() or RECORDED in connection.info:
            return None
        return cls(rows[0], schema)

    def write(self, connection: Connection) -> None:
        """Write it by a statement of its own after all."""
        write_events(connection, [self.row], schema=self.schema)

    def values(self) -> dict[str, Any]:
        """Return the parameters of a statement with `written`."""
        return dict(zip(INSERT_ONE.parameters, values_of_one(self.row), strict=True))


def written(schema: str | None) -> CTE:
    """Return the part of a statement that writes an event, with one row if it has done so."""
    return INSERT_ONE.clause(schema).columns(column("txid")).cte("written")
