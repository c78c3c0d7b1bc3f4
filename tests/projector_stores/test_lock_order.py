"""Blocked keys are locked in one order by all who lock several, so that nobody waits in a circle."""

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import AsyncConnection
from sqlalchemy import create_engine, select, text
from sqlalchemy.pool import NullPool

from pillarbox.database import sync_url
from pillarbox.projector.postgres.connecting import connect_to
from pillarbox.projector.postgres.statements import Statements
from pillarbox.projector.scope import ALL
from pillarbox.schema import apply
from pillarbox.schema.tables import outbox_blocked_key
from pillarbox.servers import Postgres
from tests.projector_stores.rig import Rig, on_postgres
from tests.support.waiting import until

STATEMENTS = Statements(schema=None, shards=64, scope=ALL, by_row=False)
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@on_postgres
async def test_a_settlement_locks_all_its_keys_in_one_order_whatever_becomes_of_them(
    rig: Rig,
) -> None:
    """It blocked the second key, then waited for the first one: with an operator a circle."""
    for seq, key in enumerate(("first", "second"), 1):
        await rig.record(seq, key=key)
    owner = await rig.owner()
    await owner.settle(waiting=await owner.claim())
    await owner.store.release_topic("orders", 10, {})
    first, second = await owner.claim()
    async with rig.database.engine.connect() as operator:
        await operator.execute(locking("first"))

        settling = asyncio.ensure_future(owner.settle(waiting=[second], sent=[first]))
        await until(lambda: waits(rig), "it waits for the first key")
        await operator.execute(locking("second"))

        await operator.rollback()
    await settling

    assert await rig.states() == {1: "SENT", 2: "key"}


def locking(key: str) -> Any:
    query = select(outbox_blocked_key.c.seq).where(outbox_blocked_key.c.key == key)
    return query.with_for_update(nowait=True)


async def waits(rig: Rig) -> bool:
    async with rig.database.engine.connect() as connection:
        return bool(await connection.scalar(text(WAITING)))


async def test_keys_are_blocked_in_the_columns_order_whatever_the_database_sorts_by(
    postgres15: Postgres,
) -> None:
    """Parameters have the collation of the database, in which `a` may come before `B`."""
    url = sorted_as_in_a_dictionary(postgres15)
    connections = [await AsyncConnection.connect(url, autocommit=True) for _ in range(2)]
    operator, other = connections
    projector = await connect_to(url)()
    try:
        await projector.execute(STATEMENTS["block_keys"], BLOCKED)
        async with operator.transaction():
            await operator.execute(LOCK, {"key": "B"})
            blocking = asyncio.ensure_future(projector.execute(STATEMENTS["block_keys"], BLOCKED))
            await until(lambda: somebody_waits(other), "it waits for the second key")

            async with other.transaction():
                await other.execute(LOCK, {"key": "a"})
        await blocking
    finally:
        for connection in (*connections, projector):
            await connection.close()


BLOCKED = {
    "tenants": ["acme", "acme"],
    "keys": ["a", "B"],
    "ids": [uuid4(), uuid4()],
    "seqs": [1, 2],
    "topics": [None, None],
}
LOCK = b"SELECT FROM outbox_blocked_key WHERE key = %(key)s FOR UPDATE NOWAIT"


async def somebody_waits(connection: AsyncConnection[Any]) -> bool:
    row = await (await connection.execute(WAITING.encode())).fetchone()
    return row is not None and bool(row[0])


def sorted_as_in_a_dictionary(postgres: Postgres) -> str:
    """Make a database in which `a` comes before `B`, with our tables."""
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        try:
            admin.execute(
                "CREATE DATABASE dictionary TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'"
            )
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this server is built without ICU")
    url = postgres.url_of("dictionary")
    engine = create_engine(sync_url(url), poolclass=NullPool)
    apply(engine)
    engine.dispose()
    return url
