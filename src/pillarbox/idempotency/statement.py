"""Statements that stand in every command's path, with nothing between them and the driver."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ClauseElement, Connection

from pillarbox.outbox.statements import is_plain, raise_as_usual


class _Text(NamedTuple):
    """A statement in a driver's own words, with the order of its parameters if they have one."""

    text: str
    order: tuple[str, ...] | None


class Found(NamedTuple):
    """What a statement did: how many rows it changed, and the first one that it returned."""

    changed: int
    row: Sequence[Any] | None


class CompiledOnce:
    """A statement that SQLAlchemy compiles once for each driver, and the driver runs.

    That is less than half of the client's cost. With psycopg it shares a round trip with BEGIN, if
    it is the first of its transaction, and with COMMIT, if the caller allows it. With echo, or with
    an event hook on execution, it takes SQLAlchemy's way, so that both see it. Errors are
    SQLAlchemy's on every way. Values go to the driver as they are, so its types must need no
    conversion.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def run(
        self, connection: Connection, values: Mapping[str, Any], *, may_commit: bool = False
    ) -> Found:
        """Run it with these values, in the connection's transaction.

        With `may_commit` that transaction may have been committed by then. SQLAlchemy does not
        know it, and its own commit, which must follow, finds nothing to do.
        """
        if not connection.in_transaction():
            connection.begin()  # SQLAlchemy does not see the driver, and would not begin by itself
        text, order = self._texts.get(connection.dialect.driver) or self._compile(connection)
        given = values if order is None else tuple([values[name] for name in order])
        if not is_plain(connection):
            result = connection.exec_driver_sql(text, given)
            return Found(result.rowcount, result.first() if result.returns_rows else None)
        if _is_psycopg(connection):
            may_commit = may_commit and not _sees_commits(connection)
            return _run_by_psycopg(connection, text, values, may_commit)
        return _run_on_cursor(connection, text, given)

    def _compile(self, connection: Connection) -> _Text:
        compiled: Any = self._statement.compile(dialect=connection.dialect)
        found = _Text(str(compiled), tuple(compiled.positiontup or ()) or None)
        return self._texts.setdefault(connection.dialect.driver, found)


def roll_back(driver: Any) -> None:
    """Roll back a transaction that has defined nothing; SQLAlchemy's own rollback must follow."""
    if hasattr(driver, "pgconn"):
        from pillarbox.idempotency import pipeline  # noqa: PLC0415 - needs libpq

        pipeline.roll_back(driver)


def _is_psycopg(connection: Connection) -> bool:
    return connection.dialect.driver == "psycopg" and connection.dialect.is_async


def _sees_commits(connection: Connection) -> bool:
    """Say whether an event hook wants to hear of a commit before it is sent."""
    watched = connection._has_events or connection.engine._has_events  # noqa: SLF001 - as SQLAlchemy asks
    return bool(watched and connection.dispatch.commit)


def _run_by_psycopg(
    connection: Connection, text: str, values: Mapping[str, Any], may_commit: bool
) -> Found:
    from pillarbox.idempotency import pipeline  # noqa: PLC0415 - needs libpq, which others do not

    driver = pipeline.sharing(connection, commits=may_commit)
    if driver is None:
        return _run_on_cursor(connection, text, values)
    try:
        return pipeline.run_shared(driver, text, values, commits=may_commit)
    except BaseException as error:  # noqa: BLE001 - it is raised again
        raise_as_usual(connection, error, text, None, None)


def _run_on_cursor(connection: Connection, text: str, values: Any) -> Found:
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute(text, values)
        found = Found(cursor.rowcount, cursor.fetchone() if cursor.description else None)
        cursor.close()
    except BaseException as error:  # noqa: BLE001 - it is raised again
        raise_as_usual(connection, error, text, None, cursor)
    return found
