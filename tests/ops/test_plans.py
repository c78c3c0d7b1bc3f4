"""Reading and acting go by partial indexes, whatever else is in the table."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from pillarbox.ops import pending
from pillarbox.ops.decisions import lock_troubled
from pillarbox.ops.filters import EventFilter
from pillarbox.ops.listing import Listing
from pillarbox.ops.transactions import Transactions
from pillarbox.outbox.release import release_keys
from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import DAY
from pillarbox.schema.tables import outbox, outbox_blocked_key
from tests.schema.conftest import database_url, engine

__all__ = ["database_url", "engine"]

# Of 60,000 events, 120 wait in the claim index, 30 behind keys, and a few are in trouble.
FILL = text(
    "INSERT INTO outbox (id, tenant_id, status, set_aside, occurred_at, shard_hash, event_type, "
    "topic, key) SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || "
    "'7000' || lpad(to_hex(n), 16, '0'))::uuid, 'tenant-' || n % 20, "
    "CASE WHEN n % 400 = 0 THEN 'NEW' WHEN n % 10000 = 1 THEN 'DEAD' WHEN n % 10000 = 2 THEN "
    "'FAILED' ELSE 'SENT' END, CASE WHEN n % 2000 = 0 THEN 'key' END, now(), n / 20 * 7919 % 65536, "
    "'T', 't', 'key-' || n % 50 FROM generate_series(1, 60000) n"
)
BLOCK = text(
    "INSERT INTO outbox_blocked_key (tenant_id, key, event_id, seq) SELECT DISTINCT ON (tenant_id, "
    "key) tenant_id, key, id, seq FROM outbox WHERE status = 'DEAD'"
)
HERE = Transactions(cast("AsyncEngine", None))  # only its tables are used
Body = Callable[[Connection], Any]


def listing(status: str, **given: Any) -> Body:
    wanted = Listing(EventFilter(**given), status, 100)
    return lambda connection: wanted.read(connection, HERE)


READS: dict[str, Body] = {
    "backlog": lambda c: pending.backlog(c, HERE, None, 1000),
    "backlog of a tenant": lambda c: pending.backlog(c, HERE, "tenant-0", 1000),
    "backlog by tenant": lambda c: pending.backlog_by_tenant(c, HERE, 1000),
    "failed": lambda c: pending.troubled(c, HERE, None, "FAILED", 1000),
    "dead of a tenant": lambda c: pending.troubled(c, HERE, "tenant-1", "DEAD", 1000),
    "oldest": lambda c: pending.oldest(c, HERE, 100),
    "oldest of a tenant": lambda c: pending.oldest(
        c, Transactions(cast("AsyncEngine", None), tenant_id="tenant-0"), 100
    ),
    "NEW": listing("NEW"),
    "PUBLISHING": listing("PUBLISHING"),
    "DEAD": listing("DEAD", topic="t"),
    "SENT": listing("SENT", tenant_id="tenant-3", after=datetime.now(UTC) + timedelta(days=2)),
}


@contextmanager
def statements(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is sent to the database."""
    sent: list[tuple[str, Any]] = []

    def note(*arguments: Any) -> None:
        sent.append(arguments[2:4])

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(connection, "before_cursor_execute", note)


def plans_of(connection: Connection, body: Body) -> list[str]:
    with statements(connection) as sent:
        body(connection)
    explain = "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) "
    return [
        "\n".join(row[0] for row in connection.exec_driver_sql(explain + statement, values))
        for statement, values in sent
    ]


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def filled(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Connection]:
    apply(engine, SchemaOptions(partitioned=request.param, ahead=DAY))
    with engine.begin() as connection:
        connection.execute(FILL)
        connection.execute(BLOCK)
        connection.exec_driver_sql("ANALYZE outbox")
        yield connection


def assert_by_index(plan: str) -> None:
    """Partitions that are empty may be scanned: nothing is read there."""
    for scan in re.findall(r"Seq Scan on outbox(?:_p\d+)? .*actual rows=([\d.]+)", plan):
        assert float(scan) == 0, plan
    removed = [int(found) for found in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
    assert sum(removed) < 1000, plan


def test_reading_the_state_reads_no_sent_row_in_passing(filled: Connection) -> None:
    for name, body in READS.items():
        plans = plans_of(filled, body)

        assert plans, name
        for plan in plans:
            assert_by_index(plan)


def test_a_count_reads_no_more_than_its_cap(filled: Connection) -> None:
    filled.execute(text("UPDATE outbox SET status = 'NEW' WHERE seq % 2 = 0"))
    filled.exec_driver_sql("ANALYZE outbox")

    for tenant_id in (None, "tenant-0"):
        body = partial(_backlog, tenant_id)
        for plan in plans_of(filled, body):
            assert_by_index(plan)
            read = [float(found) for found in re.findall(r"actual rows=([\d.]+)", plan)]
            assert max(read) <= 501, plan


def _backlog(tenant_id: str | None, connection: Connection) -> Any:
    counted = pending.backlog(connection, HERE, tenant_id, 500)
    assert not counted.exact
    return counted


def test_a_release_reads_what_it_brings_back(filled: Connection) -> None:
    blocked = filled.execute(outbox_blocked_key.select().limit(5)).all()
    rows = [row for row in blocked if row.tenant_id == blocked[0].tenant_id]
    blockers = {row.event_id: row.key for row in rows}
    ids = list(blockers)
    tenant_id = rows[0].tenant_id

    def act(connection: Connection) -> None:
        lock_troubled(connection, None, tenant_id, ids)
        release_keys(connection, tenant_id, blockers, chunk=10)

    for plan in plans_of(filled, act):
        assert_by_index(plan)


def test_matching_events_are_found_among_those_in_trouble(filled: Connection) -> None:
    matching = EventFilter(topic="t").acted_on(outbox)
    query = outbox.select().where(*matching)

    for plan in plans_of(filled, lambda connection: connection.execute(query).all()):
        assert_by_index(plan)
