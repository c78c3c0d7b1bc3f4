"""Run the statements in `sql/` with as little between us and the driver as can be."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import Connection, Dialect, TextClause, text


class _Text(NamedTuple):
    """A statement in a driver's own words, and the way to arrange its values for the driver."""

    text: str
    arranged: Callable[[Sequence[Any]], Any]


class Statement:
    """A statement of `sql/` with its parameters' names, compiled once for each driver and schema.

    Where nobody looks on, the driver's cursor runs it: that is a third of what SQLAlchemy's
    execution costs the client. With echo, or with an event hook on execution, it takes SQLAlchemy's
    way, so that both see it. Errors are SQLAlchemy's on both ways.

    Its types must be fixed by casts: no change of the schema then makes what a driver has prepared
    stale, and values and rows need no conversion.
    """

    def __init__(self, name: str, parameters: Sequence[str]) -> None:
        self._name, self.parameters = name, tuple(parameters)
        self._texts: dict[tuple[str, str | None], _Text] = {}

    def run(
        self, connection: Connection, values: Sequence[Any], schema: str | None
    ) -> Sequence[Any] | None:
        """Run it with values in the order of its parameters, and return its first row."""
        dialect = connection.dialect
        found = self._texts.get((dialect.driver, schema)) or self._compile(dialect, schema)
        arranged = found.arranged(values)
        if is_plain(connection):
            return _run_on_cursor(connection, found.text, arranged)
        return connection.exec_driver_sql(found.text, arranged).first()

    def clause(self, schema: str | None) -> TextClause:
        """Return it as a part for other statements; each of its parameters has its name."""
        written = files("pillarbox.outbox").joinpath(f"sql/{self._name}.sql").read_text("utf-8")
        if schema is not None:
            written = written.replace("INSERT INTO outbox (", f'INSERT INTO "{schema}".outbox (')
        return text(written)

    def _compile(self, dialect: Dialect, schema: str | None) -> _Text:
        compiled = self.clause(schema).compile(dialect=dialect)
        found = _Text(str(compiled), self._arrangement(compiled.positiontup))
        return self._texts.setdefault((dialect.driver, schema), found)

    def _arrangement(self, order: Sequence[str] | None) -> Callable[[Sequence[Any]], Any]:
        names = self.parameters
        if order:
            return itemgetter(*map(names.index, order))
        return lambda values: dict(zip(names, values, strict=True))


def is_plain(connection: Connection) -> bool:
    """Say whether a transaction runs, and neither echo nor an event hook would see a statement."""
    savepoint = connection.get_nested_transaction()
    if not connection.in_transaction() or (savepoint is not None and not savepoint.is_active):
        return False  # SQLAlchemy begins one, or says what is wrong
    return not (connection._echo or _is_watched(connection))  # noqa: SLF001 - asked before it logs


def _is_watched(connection: Connection) -> bool:
    engine, dialect = connection.engine, connection.dialect
    if dialect._has_events and dialect.dispatch.do_execute:  # noqa: SLF001 - as SQLAlchemy asks
        return True
    if not (connection._has_events or engine._has_events):  # noqa: SLF001 - the same
        return False
    hooks = connection.dispatch
    return bool(hooks.before_cursor_execute or hooks.after_cursor_execute)


def _run_on_cursor(connection: Connection, statement: str, values: Any) -> Sequence[Any] | None:
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute(statement, values)
        row: Sequence[Any] | None = cursor.fetchone()
        cursor.close()
    except BaseException as error:  # noqa: BLE001 - it is raised again
        raise_as_usual(connection, error, statement, values, cursor)
    return row


def raise_as_usual(
    connection: Connection, error: BaseException, statement: str, values: Any, cursor: Any
) -> NoReturn:
    """Raise what came of a statement that SQLAlchemy did not see as if it had.

    Wraps a driver's error, closes the cursor, and lets a connection go that was lost or cancelled
    in the middle; other errors pass as they are when no statement is named.
    """
    named = statement if isinstance(error, connection.dialect.loaded_dbapi.Error) else None
    connection._handle_dbapi_exception(error, named, values, cursor, None)  # noqa: SLF001
