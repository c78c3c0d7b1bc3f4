"""Outbox rows in bulk, and databases that hold them: every side of a round gets an equal copy.

Rows are made by PostgreSQL itself in transactions of a few rows each, as services would have
written them. A template is filled once and copied file by file for each side.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import create_engine

from pillarbox import schema
from pillarbox.database import sync_url
from pillarbox.servers import Postgres

TOPIC: Final = "shop.order"

# Each makes the key of row n; 1/k is the Zipf distribution with exponent 1.
EVEN: Final = "(n * 7919 % 5000)::text"
HOT: Final = "(n * 7919 % 10)::text"
ZIPF: Final = "floor(exp(random() * ln(5001)))::int::text"
DISTRIBUTIONS: Final = {"5,000 even keys": EVEN, "10 hot keys": HOT, "Zipf": ZIPF}

_SETTINGS: Final[Mapping[str, str | float]] = {
    # Room for a round's WAL: a checkpoint forced by its size would hit one side and not the other.
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "max_connections": 100,
}

_SEGMENTS: Final = 64  # of 16 MB

_FILL: Final = """
DO $$
BEGIN
    PERFORM setseed(0.7);
    FOR low IN {first}..{last} BY {per_transaction} LOOP
        INSERT INTO outbox (
            occurred_at, aggregate_version, event_number, shard_hash, id, tenant_id, status,
            set_aside, published_at, event_type, topic, key, aggregate_type, aggregate_id,
            event_metadata, payload
        )
        SELECT
            clock_timestamp(), n, 1,
            get_byte(digest, 0) * 256 + get_byte(digest, 1),
            uuidv7(), {tenant}, {status}, {set_aside},
            CASE WHEN {status} = 'SENT' THEN clock_timestamp() END,
            'OrderConfirmed', {topic}, key, 'Order', key,
            ('{{"traceparent":"00-' || md5(n::text) || '-' || left(md5(key), 16) || '-01"}}')::json,
            ('{{"order_id":' || n || ',"note":"' || rpad('', {note}, md5(n::text)) || '"}}')::json
        FROM (
            SELECT n, key, sha256(
                convert_to({tenant}, 'UTF8') || '\\x00'::bytea || convert_to(key, 'UTF8')
            ) AS digest
            FROM (
                SELECT n, {key} AS key
                FROM generate_series(low::bigint, least(low + {per_transaction} - 1, {last})) AS n
                OFFSET 0
            ) AS keyed
            OFFSET 0
        ) AS hashed;
        COMMIT;
    END LOOP;
END $$
"""

_INDEXES: Final = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'outbox'"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows to load; `key` is an expression over their number `n`.

    A payload has 400 bytes with the usual note.
    """

    rows: int
    key: str = EVEN
    tenant: str = "default"
    status: str = "NEW"
    set_aside: str | None = None
    topic: str = TOPIC
    note: int = 372
    per_transaction: int = 100
    first: int = 1


def postgres_server() -> Postgres:
    """Make the server of the projector's suites: PostgreSQL 18, durable as it comes."""
    return Postgres(version=18, settings=_SETTINGS)


def create_template(postgres: Postgres, name: str, *backlogs: Backlog) -> str:
    """Create a migrated database, fill it and leave it as a vacuum finds it; return its address."""
    url = postgres.create_database(name)
    engine = create_engine(sync_url(url))
    schema.apply(engine)
    engine.dispose()
    with connected(url) as connection:
        for backlog in backlogs:
            fill(connection, backlog)
        connection.execute("VACUUM (ANALYZE, FREEZE) outbox")
        _lay_in_wal(connection)
    return url


def _lay_in_wal(connection: psycopg.Connection) -> None:
    """Have segments of WAL in stock, as a server that has run for a while: making one is a stall."""
    for _ in range(_SEGMENTS):
        connection.execute("SELECT pg_logical_emit_message(false, 'stock', '')")
        connection.execute("SELECT pg_switch_wal()")
    connection.execute("CHECKPOINT")


def fill(connection: psycopg.Connection, backlog: Backlog) -> None:
    """Insert rows; a large load builds the indexes afterwards."""
    connection.execute("SET synchronous_commit = off")
    found = connection.execute(_INDEXES).fetchall() if backlog.rows > 2_000_000 else []
    later = [(name, definition) for name, definition in found if name != "pk_outbox"]
    for name, _ in later:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    connection.execute(sql.SQL(_FILL).format(**_values(backlog)))
    connection.execute("SET maintenance_work_mem = '1GB'")
    for _, definition in later:
        connection.execute(definition)


def _values(backlog: Backlog) -> dict[str, sql.Composable]:
    return {
        "first": sql.Literal(backlog.first),
        "last": sql.Literal(backlog.first + backlog.rows - 1),
        "per_transaction": sql.Literal(backlog.per_transaction),
        "tenant": sql.Literal(backlog.tenant),
        "status": sql.Literal(backlog.status),
        "set_aside": sql.Literal(backlog.set_aside),
        "topic": sql.Literal(backlog.topic),
        "note": sql.Literal(backlog.note),
        "key": sql.SQL(backlog.key),
    }


@contextmanager
def copy_of(postgres: Postgres, template: str, name: str = "round") -> Iterator[str]:
    """Copy a template for one side, and drop the copy afterwards.

    Copying files begins and ends with a checkpoint, so that each side starts after one.
    """
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    with connected(postgres.url) as connection:
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    try:
        yield postgres.url_of(name)
    finally:
        postgres.drop_database(name)


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """Connect in autocommit mode."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def scalar(url: str, statement: Any, *values: Any) -> Any:
    """Ask for one value."""
    with connected(url) as connection:
        row = connection.execute(statement, values).fetchone()
        return None if row is None else row[0]
