"""The plans of the shipped statements on a full table, in every state that a table may be in.

Each is asked for twice: as the projector's own connections prepare it, and with values on a session
without any setting, which is what a pooler gives.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.types.string import ByteaBinaryLoader
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.postgres.store import PostgresStore
from pillarbox.projector.scope import ALL
from pillarbox.projector.store import Member
from pillarbox.schema import SchemaOptions, apply
from pillarbox.schema.partitions import DAY
from pillarbox.servers import Postgres
from tests.projector_stores.rig import Owner
from tests.projector_stores.test_statement_plans import PLANNED_ANEW, by_key, numbered
from tests.schema.databases import emptied

FEED, TURNS, KEY = "ix_outbox_txid", "ix_outbox_claim", "pk_outbox"
FAILED, LATER = "ix_outbox_processing", "ix_outbox_due"
PLANS = {
    "read": {FEED, TURNS},
    "read_and_claim": {FEED},
    "settle_sent": {KEY},
    "settle_sent_many": {KEY},
    "settle_deleted": {KEY},
    "settle_deleted_many": {KEY},
    "promote": {FAILED, LATER, KEY},
    "set_aside": {KEY},
    "block_keys": {KEY},
    "settle_failed": {KEY},
    "count_attempt": {KEY},
}
STATEMENTS = Statements(schema=None, shards=64, scope=ALL, by_row=False)
NAMES = {STATEMENTS[name]: name for name in PLANS}
# Of 50,000 rows most are SENT; 2,500 can be claimed, others wait, failed or gave up.
FILL = text("""
    INSERT INTO outbox (id, tenant_id, status, set_aside, occurred_at, shard_hash, event_type,
        topic, key, payload)
    SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '7000' ||
        lpad(to_hex(n), 16, '0'))::uuid, 'tenant-' || n % 50,
        CASE n % 20 WHEN 0 THEN 'NEW' WHEN 1 THEN 'NEW'
            WHEN 2 THEN CASE n % 3 WHEN 0 THEN 'FAILED' ELSE 'DEAD' END ELSE 'SENT' END,
        CASE n % 20 WHEN 1 THEN 'key' END,
        now(), n * 7919 % 65536, 'T', 't', 'k' || n % 500, '{}'
    FROM generate_series(CAST(:first AS int), CAST(:last AS int)) n""")
INDEX = re.compile(
    r"(?:Index(?: Only)? Scan(?: Backward)? using|Bitmap Index Scan on) (\w+).*"
    r"(?:\n *Index Cond: (.*))?"
)
SCAN = re.compile(r"Seq Scan on (outbox(?:_p\d+)?) ")
# Each index of the outbox or of a partition: its table, and its name in the outbox itself.
INDEXES = b"""
    SELECT c.relname, t.relname, coalesce(p.relname, c.relname) FROM pg_index x
    JOIN pg_class c ON c.oid = x.indexrelid
    JOIN pg_class t ON t.oid = x.indrelid AND t.relname ~ '^outbox(_p[0-9]+)?$'
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    LEFT JOIN pg_class p ON p.oid = i.inhparent"""

Seen = dict[str, Any]


class NotingCursor(AsyncCursor[Any]):
    """Notes the values that each statement was last performed with."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        if query in NAMES:
            assert isinstance(self.connection, NotingConnection)
            self.connection.seen[NAMES[query]] = params
        return await super().execute(query, params, **options)


class NotingConnection(AsyncConnection[Any]):
    """A connection as through a pooler: nothing is prepared and nothing set."""

    seen: Seen

    @classmethod
    async def opened(cls, url: str, seen: Seen) -> "NotingConnection":
        connection = await cls.connect(url, autocommit=True, cursor_factory=NotingCursor)
        connection.seen, connection.prepare_threshold = seen, None
        connection.adapters.register_loader("json", ByteaBinaryLoader)
        return connection


@asynccontextmanager
async def owner_of(url: str, seen: Seen, **settings: Any) -> AsyncIterator[Owner]:
    """Join with such connections, and own all shards."""
    member_id = uuid4()
    store = PostgresStore(
        lambda: NotingConnection.opened(url, seen),
        config=OutboxProjectorConfig(**settings),
        scope=ALL,
        member_id=member_id,
        source="shop",
        schema=None,
        shards=64,
    )
    async with store:
        await store.join(Member(member_id, "shop", "host", 1, "0"))
        owner = Owner(store, member_id)
        await owner.keep()
        yield owner
        await store.leave()


def filled(postgres: Postgres, *, partitioned: bool) -> str:
    """Make a database with the tables and 50,000 rows that nobody has looked at."""
    url = emptied(postgres)
    engine = create_engine(sync_url(url), poolclass=NullPool)
    apply(engine, SchemaOptions(partitioned=partitioned, ahead=DAY))
    with engine.begin() as connection:
        tables = connection.scalars(
            text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^outbox(_p.*)?$'")
        )
        for table in tables.all():
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        connection.execute(FILL, {"first": 1, "last": 50_000})
    engine.dispose()
    return url


def add_more(url: str, first: int) -> None:
    engine = create_engine(sync_url(url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(FILL, {"first": first, "last": first + 99})
    engine.dispose()


async def perform_all(url: str) -> Seen:
    """Have the store perform each statement, and return the values of each."""
    seen: Seen = {}
    for number, on_sent in enumerate(("keep", "delete")):
        async with owner_of(url, seen, on_sent=on_sent) as owner:
            await owner.store.promote(sorted(owner.epochs))
            events = await owner.claim(100)
            tenant = events[0].lane[0]
            await owner.settle(sent=[event for event in events if event.lane[0] == tenant])
            await owner.settle(sent=[event for event in events if event.lane[0] != tenant])
            await set_some_aside(owner)
            while (await owner.claim_once(2_000)).more:
                pass
            add_more(url, 60_000 + 1_000 * number)
            assert await owner.claim(100)
    return seen


async def set_some_aside(owner: Owner) -> None:
    """Have one event counted, fail it, and let others wait for their topic."""
    events = {event.lane: event for event in await owner.claim(100)}
    first, *others = events.values()
    await owner.settle(counted=[first])
    await owner.fail(first._replace(attempts=first.attempts + 1))
    await owner.settle(waiting=others)


async def indexes(
    connection: AsyncConnection[Any], explain: bytes, values: Any, *, kept: bool
) -> set[str]:
    """Return what a plan reads the outbox by.

    How a partition without any row is looked into is of no importance in a plan that is not kept.
    """
    known = {index: of for index, *of in await (await connection.execute(INDEXES)).fetchall()}
    cursor = await connection.execute(explain, values, prepare=False)
    plan = "\n".join(line for (line,) in await cursor.fetchall())
    used = [
        known[index] if by_key(known[index][1], condition) else [known[index][0], plan]
        for index, condition in INDEX.findall(plan)
        if index in known
    ]
    used += [[table, plan] for table in SCAN.findall(plan)]
    return {how for table, how in used if kept or await is_full(connection, table)}


async def is_full(connection: AsyncConnection[Any], table: str) -> bool:
    found = await connection.execute(f"SELECT 1 FROM {table} LIMIT 1".encode())
    return await found.fetchone() is not None


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
async def test_every_statement_stays_on_its_index_in_a_full_table(
    postgres18: Postgres, partitioned: bool
) -> None:
    url = filled(postgres18, partitioned=partitioned)
    own = await connect_to(url)()
    seen = await perform_all(url)
    bare = await NotingConnection.opened(url, {})
    found = {}
    try:
        for analyzed in (False, True):
            if analyzed:
                await own.execute("ANALYZE outbox")
            for name in PLANS:
                statement = STATEMENTS[name]
                generic = b"EXPLAIN (GENERIC_PLAN) " + numbered(statement)
                found[name, analyzed, "own"] = await indexes(
                    own, generic, None, kept=name not in PLANNED_ANEW
                )
                pooled = indexes(bare, b"EXPLAIN " + statement, seen[name], kept=False)
                found[name, analyzed, "pooled"] = await pooled
    finally:
        await own.close()
        await bare.close()

    assert found == {place: PLANS[place[0]] for place in found}


# With these a planner that may start workers does.
CHEAP_WORKERS = (
    b"SET parallel_setup_cost = 0",
    b"SET parallel_tuple_cost = 0",
    b"SET min_parallel_table_scan_size = 0",
    b"SET min_parallel_index_scan_size = 0",
)


async def test_no_claim_waits_for_workers_to_start(postgres18: Postgres) -> None:
    """With ten million rows pending each claim started two of them, and read no row by them."""
    own = await connect_to(filled(postgres18, partitioned=False))()
    explain = b"EXPLAIN (GENERIC_PLAN) " + numbered(STATEMENTS["read"])
    try:
        for setting in (b"ANALYZE outbox", *CHEAP_WORKERS):
            await own.execute(setting)
        plan = str(await (await own.execute(explain, prepare=False)).fetchall())
        await own.execute(b"SET max_parallel_workers_per_gather = 2")
        tempted = str(await (await own.execute(explain, prepare=False)).fetchall())
    finally:
        await own.close()

    assert "Gather" not in plan
    assert "Gather" in tempted


async def test_where_little_is_due_it_is_looked_at_from_one_end_only(postgres18: Postgres) -> None:
    own = await connect_to(filled(postgres18, partitioned=False))()
    values = {"shards": "{" + ",".join(map(str, range(64))) + "}", "limit": 1_000, "window": 4_000}
    try:
        explain = b"EXPLAIN (ANALYZE) " + STATEMENTS["promote"]
        plan = [line for (line,) in await (await own.execute(explain, values)).fetchall()]
    finally:
        await own.close()

    backward = [line for line in plan if "Scan Backward" in line]
    assert len(backward) == 2
    assert all("never executed" in line for line in backward)
