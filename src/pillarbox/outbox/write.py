"""Write a transaction's event rows: the one way into the table."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from sqlalchemy import (
    BindParameter,
    Connection,
    Text,
    bindparam,
    cast,
    func,
    select,
    tuple_,
)
from sqlalchemy.dialects.sqlite import insert

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.errors import DuplicateEventId, InvalidConfig, InvalidEventId
from pillarbox.event.ids import made_at
from pillarbox.outbox.locks import locks_for
from pillarbox.outbox.row import COLUMNS, EventRow
from pillarbox.outbox.statements import Statement
from pillarbox.schema.tables import outbox, outbox_settings, table_in

MAX_STATEMENT_BYTES: Final = 16 * 1024 * 1024
_COMPARED_AT_ONCE: Final = 5_000  # drivers take some 32,000 parameters
_ID_TOLERANCE: Final = timedelta(days=1)

# Under this name a connection's `info` holds who wants to hear of its rows: tests do.
RECORDED: Final = "pillarbox.recorded"

_JSON: Final = ("payload", "event_metadata")

INSERT_ONE: Final = Statement("insert_event", (*COLUMNS, "gate", "key_lock"))
_NO_LOCKS: Final = (None, None)
_INSERT_MANY: Final = Statement("insert_events", ("lock_shared", "lock_numbers", "events"))


def _bound(name: str) -> BindParameter[Any]:
    return bindparam(name, type_=Text() if name in _JSON else outbox.c[name].type)


# JSON goes in as the text it was checked as; SQLAlchemy's JSON type would write it anew.
_SQLITE_INSERT: Final = (
    insert(outbox)
    .values({name: _bound(name) for name in ("seq", "set_aside", *COLUMNS)})
    .on_conflict_do_nothing()
)

# What must be equal when an event is recorded twice under one id.
COMPARED: Final = (
    "event_type", "topic", "key", "aggregate_type", "aggregate_id", "aggregate_version",
    "event_number", "schema_version", "schema_id", "routing_key", "event_metadata",
    "content_type", "payload", "payload_bytes",
)  # fmt: skip


def write_events(
    connection: Connection, rows: Sequence[EventRow], *, schema: str | None = None
) -> str | None:
    """Insert rows in their order, inside the connection's transaction.

    Repeating an id with equal content changes nothing; with other content it raises
    `DuplicateEventId`. Returns the transaction's id where the database has one.
    """
    refuse_autocommit(connection)
    match connection.dialect.name:
        case "postgresql":
            inserted, transaction = _write_postgresql(connection, rows, schema)
        case "sqlite":
            inserted, transaction = _write_sqlite(connection, rows), None
        case other:
            raise InvalidConfig("database", f"{other} is not supported", "use PostgreSQL or SQLite")
    if inserted < len(rows):
        for start in range(0, len(rows), _COMPARED_AT_ONCE):
            _refuse_other_content(connection, rows[start : start + _COMPARED_AT_ONCE], schema)
    heard: Callable[[Sequence[EventRow]], None] | None = connection.info.get(RECORDED)
    if heard is not None:
        heard(rows)
    return transaction


def _write_postgresql(
    connection: Connection, rows: Sequence[EventRow], schema: str | None
) -> tuple[int, str | None]:
    if len(rows) == 1:
        found = INSERT_ONE.run(connection, values_of_one(rows[0]), schema)
        return (0, None) if found is None else (1, found[0])
    locks = locks_for(rows)
    shared, numbered = _array(lock.shared for lock in locks), _array(lock.number for lock in locks)
    inserted, transaction = 0, None
    for chunk in _chunks(rows):
        events = orjson.dumps([_as_json(row) for row in chunk]).decode()
        found = _INSERT_MANY.run(connection, (shared, numbered, events), schema)
        if found is not None:
            inserted, transaction = inserted + found[0], found[1]
    return inserted, transaction


def values_of_one(row: EventRow) -> tuple[Any, ...]:
    """Return the parameters of `INSERT_ONE`, in their order."""
    numbers = [lock.number for lock in locks_for((row,))] or _NO_LOCKS
    return (*row[: len(COLUMNS)], *numbers)


def _write_sqlite(connection: Connection, rows: Sequence[EventRow]) -> int:
    # SQLite has one writer at a time: this update takes the write lock and draws the numbers.
    drawn = connection.execute(
        outbox_settings.update()
        .values(last_seq=outbox_settings.c.last_seq + len(rows))
        .returning(outbox_settings.c.last_seq)
    ).scalar_one_or_none()
    if drawn is None:
        raise InvalidConfig("outbox", "has no settings row", "run `pillarbox schema apply`")
    first = drawn - len(rows) + 1
    now = SYSTEM_CLOCK.now()  # SQLite has no other clock
    values = [
        {"seq": first + n, "set_aside": _aside(row, now), **dict(zip(COLUMNS, row, strict=False))}
        for n, row in enumerate(rows)
    ]
    return connection.execute(_SQLITE_INSERT, values).rowcount


def _aside(row: EventRow, now: datetime) -> str | None:
    return "later" if row.deliver_at is not None and row.deliver_at > now else None


def refuse_autocommit(connection: Connection) -> None:
    """Refuse a connection without transactions: nothing would hold data and event together."""
    if _autocommits(connection):
        raise InvalidConfig(
            "isolation_level",
            "is AUTOCOMMIT, so that no transaction holds data and event together",
            "use a session or a connection with transactions",
        )


def _autocommits(connection: Connection) -> bool:
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    pooled = connection.connection
    dbapi_connection = pooled.dbapi_connection
    if dbapi_connection is None or not connection.dialect.detect_autocommit_setting(
        dbapi_connection
    ):
        return False
    # SQLite's driver reports autocommit also when SQLAlchemy began the transaction itself.
    return not getattr(pooled.driver_connection, "in_transaction", False)


def check_given_ids(
    connection: Connection, rows: Sequence[EventRow], *, schema: str | None = None
) -> None:
    """Refuse ids of the caller's own that no partition of the table would take.

    Partitions are ranges of version 7 ids; one far from the database's clock lies outside them.
    """
    given = [row.id for row in rows if row.given_id]
    if not given or connection.dialect.name != "postgresql":
        return
    settings = table_in(outbox_settings, schema)
    found = connection.execute(select(settings.c.layout, func.now())).one_or_none()
    if found is None or found[0] != "partitioned":
        return
    for event_id in given:
        made = made_at(event_id)
        if made is None or abs(made - found[1]) > _ID_TOLERANCE:
            raise InvalidEventId(
                "event_id",
                f"{event_id} is not of version 7 and within a day of the database's clock, as a "
                "partitioned outbox needs it",
                "leave it out, or make it with version 7 at the time of recording",
            )


def _chunks(rows: Sequence[EventRow]) -> Iterator[Sequence[EventRow]]:
    """Cut a batch so that no statement grows beyond its limit; usually there is one."""
    start, size = 0, 0
    for position, row in enumerate(rows):
        size += len(row.payload or "") + len(row.payload_bytes or b"") + len(row.event_metadata)
        if size > MAX_STATEMENT_BYTES and position > start:
            yield rows[start:position]
            start, size = position, 0
    yield rows[start:]


def _as_json(row: EventRow) -> dict[str, Any]:
    values = dict(zip(COLUMNS, row, strict=False))
    if row.payload_bytes is not None:
        values["payload_bytes"] = b64encode(row.payload_bytes).decode()
    return values


def _array(values: Iterable[int | bool]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _refuse_other_content(
    connection: Connection, rows: Sequence[EventRow], schema: str | None
) -> None:
    """Compare rows that stand in the table already with the ones that were to be written."""
    table = table_in(outbox, schema)
    columns = [cast(table.c[name], Text) if name in _JSON else table.c[name] for name in COMPARED]
    ids = {(row.tenant_id, row.id) for row in rows}
    found = connection.execute(
        select(table.c.tenant_id, table.c.id, *columns).where(
            tuple_(table.c.tenant_id, table.c.id).in_(ids)
        )
    )
    stored = {(tenant_id, event_id): values for tenant_id, event_id, *values in found}
    for row in rows:
        for name, value in zip(COMPARED, stored[row.tenant_id, row.id], strict=True):
            if _content(name, value) != _content(name, getattr(row, name)):
                raise DuplicateEventId(str(row.id), name)


def _content(name: str, value: Any) -> Any:
    """Return a column's value without the trace, which differs from one attempt to the next."""
    if name != "event_metadata":
        return value
    return {k: v for k, v in orjson.loads(value).items() if k not in ("traceparent", "tracestate")}
