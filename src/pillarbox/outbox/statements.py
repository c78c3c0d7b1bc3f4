"""Run the statements in `sql/` with as little between us and the driver as SQLAlchemy allows."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, text


class _Statement(NamedTuple):
    """A statement in a driver's own words, and the way to arrange its parameters for the driver."""

    text: str
    arranged: Callable[[Mapping[str, Any]], Any]


def run(
    connection: Connection, name: str, parameters: Mapping[str, Any], schema: str | None
) -> Sequence[Any] | None:
    """Run a statement and return its first row.

    SQLAlchemy compiles it once for each driver; running the compiled text halves the client's
    cost of the statement beside `connection.execute(text(…))`.
    """
    statement = _compiled(name, _Driver(connection.dialect), schema)
    values = statement.arranged(parameters)
    return connection.exec_driver_sql(statement.text, values).first()


class _Driver(NamedTuple):
    """A dialect that is told from others by its driver alone."""

    dialect: Dialect

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Driver) and self.dialect.driver == other.dialect.driver

    def __hash__(self) -> int:
        return hash(self.dialect.driver)


@cache
def _compiled(name: str, driver: _Driver, schema: str | None) -> _Statement:
    written = files("pillarbox.outbox").joinpath(f"sql/{name}.sql").read_text("utf-8")
    if schema is not None:
        written = written.replace("INSERT INTO outbox (", f'INSERT INTO "{schema}".outbox (')
    compiled = text(written).compile(dialect=driver.dialect)
    order = compiled.positiontup
    return _Statement(str(compiled), itemgetter(*order) if order else dict)
