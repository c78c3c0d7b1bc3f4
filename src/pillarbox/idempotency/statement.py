"""Statements that stand in every command's path, with nothing between them and the driver."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Connection
from sqlalchemy.exc import DBAPIError


class _Text(NamedTuple):
    """A statement in a driver's own words, with the order of its parameters if they have one."""

    text: str
    order: tuple[str, ...] | None


class Found(NamedTuple):
    """What a statement did: how many rows it changed, and the first one that it returned."""

    changed: int
    row: Sequence[Any] | None


class CompiledOnce:
    """A statement that SQLAlchemy compiles once for each driver, and the driver's cursor runs.

    That is less than half of the client's cost, and it has its price: no event hook and no echo
    sees it. Values go to the driver as they are, so its types must need no conversion.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> Found:
        """Run it with these values, in the connection's transaction."""
        if not connection.in_transaction():
            connection.begin()  # SQLAlchemy does not see the cursor, and would not begin by itself
        text, order = self._texts.get(connection.dialect.driver) or self._compile(connection)
        given = values if order is None else [values[name] for name in order]
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, given)
            found = Found(cursor.rowcount, cursor.fetchone() if cursor.description else None)
        except connection.dialect.loaded_dbapi.Error as error:
            raise _wrapped(connection, text, error, cursor) from error
        except BaseException:
            # Cancelled in the middle: its answer would meet the next one. The cursor goes with it.
            connection.invalidate()
            raise
        cursor.close()
        return found

    def _compile(self, connection: Connection) -> _Text:
        compiled: Any = self._statement.compile(dialect=connection.dialect)
        found = _Text(str(compiled), tuple(compiled.positiontup or ()) or None)
        return self._texts.setdefault(connection.dialect.driver, found)


def _wrapped(connection: Connection, text: str, error: Any, cursor: Any) -> BaseException:
    """Return a driver's error as SQLAlchemy raises it; a lost connection is not used again."""
    dialect, pooled = connection.dialect, connection.connection
    is_lost = dialect.is_disconnect(error, pooled.dbapi_connection, cursor)
    if is_lost:
        connection.invalidate(error)
    else:
        cursor.close()
    found: BaseException = DBAPIError.instance(
        text,
        None,
        error,
        dialect.loaded_dbapi.Error,
        hide_parameters=True,
        connection_invalidated=is_lost,
        dialect=dialect,
    )
    return found
