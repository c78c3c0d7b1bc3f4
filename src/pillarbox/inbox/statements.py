"""The statements of the inbox, for PostgreSQL and SQLite.

A batch travels as one JSON text, as events do (decision 0005), so that no statement ever varies.
"""

from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Delete,
    FromClause,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    column,
    delete,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from pillarbox.errors import InvalidConfig
from pillarbox.inbox.message import InboxRow
from pillarbox.schema.tables import inbox, table_in
from pillarbox.schema.types import StoredJson, UtcTime

KEY: Final = ("tenant_id", "consumer", "message_id")
_JSON: Final = ("payload", "extra_data")
_AGED: Final = {"inbox": "processed_at", "inbox_attempt": "last_at"}
_ROW: Final[dict[str, ColumnElement[Any]]] = {
    "postgresql": literal_column("ctid"),
    "sqlite": literal_column("rowid"),
}


def dialect_of(connection: Connection) -> str:
    """Return the name of a database that is served, or refuse it."""
    name = connection.dialect.name
    if name not in _ROW:
        raise InvalidConfig("database", f"{name} is not supported", "use PostgreSQL or SQLite")
    return name


@cache
def insert_one(dialect: str, schema: str | None) -> ReturningInsert[Any]:
    """Insert a message unless it is there, and return when; a running insert is waited for."""
    table = table_in(inbox, schema)
    values = {name: _bound(name) for name in (*KEY[:2], *InboxRow._fields)}
    return (
        _insert(dialect, table)
        .values(values)
        .on_conflict_do_nothing(index_elements=KEY)
        .returning(table.c.processed_at)
    )


@cache
def insert_many(dialect: str, schema: str | None) -> ReturningInsert[Any]:
    """Insert those of a batch that are not there, in the order of their ids, and return them."""
    table = table_in(inbox, schema)
    source, values = _given(dialect)
    rows = (
        select(*(_bound(name) for name in KEY[:2]), *values)
        .select_from(source)
        .where(true())  # SQLite would take ON CONFLICT for a join without it
        .order_by(values[0])
    )
    return (
        _insert(dialect, table)
        .from_select([*KEY[:2], *InboxRow._fields], rows)
        .on_conflict_do_nothing(index_elements=KEY)
        .returning(table.c.message_id)
    )


@cache
def hashes(schema: str | None) -> Select[Any]:
    """Read the hashes of messages that are there."""
    table = table_in(inbox, schema)
    ids: BindParameter[Any] = bindparam("message_ids", expanding=True)
    return select(table.c.message_id, table.c.payload_hash).where(
        table.c.tenant_id == _bound("tenant_id"),
        table.c.consumer == _bound("consumer"),
        table.c.message_id.in_(ids),
    )


@cache
def whole_row(schema: str | None) -> Select[Any]:
    """Read everything about a message."""
    table = table_in(inbox, schema)
    return select(table).where(*(table.c[name] == _bound(name) for name in KEY))


@cache
def delete_old(
    dialect: str, schema: str | None, kind: Table = inbox, *, of_tenant: bool = True
) -> Delete:
    """Delete some of the oldest rows of a consumer, of one tenant or of all; the inbox has an index.

    Rows that another clean-up holds are passed over, so that two of them do not wait.
    """
    table = table_in(kind, schema)
    mine = [table.c[name] == _bound(name) for name in KEY[not of_tenant : 2]]
    row, aged = _ROW[dialect], table.c[_AGED[kind.name]]
    oldest = (
        select(row)
        .where(*(_filtered(dialect, condition) for condition in mine))
        .where(aged < _cutoff(dialect))
        .select_from(table)
        .order_by(aged)
        .limit(bindparam("batch"))
        .with_for_update(skip_locked=True)
    )
    if dialect == "postgresql":
        # An array is made once; a subquery that locks may run often, each time for other rows.
        return delete(table).where(row == any_(func.array(oldest.scalar_subquery())))
    return delete(table).where(row.in_(oldest))


def cutoff_value(dialect: str, age: timedelta, now: datetime) -> Any:
    """Return what says how old is too old: PostgreSQL goes by its own clock."""
    return age if dialect == "postgresql" else now - age


def _filtered(dialect: str, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Have SQLite test a condition on the rows it reads, and not choose its index for it."""
    if dialect == "postgresql":
        return condition
    return UnaryExpression(condition.self_group(), operator=custom_op("+"), type_=Boolean())


def _cutoff(dialect: str) -> ColumnElement[Any]:
    if dialect == "postgresql":
        age: BindParameter[Any] = bindparam("cutoff", type_=postgresql.INTERVAL())
        return func.now() - age
    return bindparam("cutoff", type_=UtcTime())


def _insert(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def _bound(name: str) -> ColumnElement[Any]:
    """Bind a column's value; JSON goes in as the text it was checked as."""
    if name in _JSON:
        return cast(bindparam(name, type_=Text()), StoredJson)
    return bindparam(name, type_=inbox.c[name].type)


def _given(dialect: str) -> tuple[FromClause, list[ColumnElement[Any]]]:
    """Return the rows of a batch's JSON text, and their columns in order."""
    messages: BindParameter[Any] = bindparam("messages", type_=Text())
    if dialect == "sqlite":
        each = func.json_each(messages).table_valued("value", name="given")
        return each, [func.json_extract(each.c.value, f"$.{name}") for name in InboxRow._fields]
    columns = (column(name, Text()) for name in InboxRow._fields)
    record = func.json_to_recordset(cast(messages, postgresql.JSON())).table_valued(*columns)
    given = record.render_derived(name="given", with_types=True)
    typed = [
        cast(given.c[name], StoredJson) if name in _JSON else given.c[name]
        for name in InboxRow._fields
    ]
    return given, [typed[0].collate("C"), *typed[1:]]
