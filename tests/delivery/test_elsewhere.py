"""The same delivery through a pooler, on a partitioned table, in another schema, on older servers."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from pillarbox import OutboxProjector
from pillarbox.database import async_url, sync_url
from pillarbox.schema import apply
from pillarbox.schema.options import SchemaOptions
from pillarbox.servers import PgBouncer, Postgres
from tests.delivery.shop import QUICK, Shop
from tests.support.database import on, opened


@on("postgres15+asyncpg", "postgres16+psycopg", "postgres18+asyncpg")
async def test_events_arrive_in_order_on_every_server(shop: Shop) -> None:
    async with shop.projecting():
        ids = await shop.add(*["a", "b"] * 20)
        await shop.sent(ids)

    for key in "ab":
        mine = [m.event_id for m in shop.bus.messages if m.key == key]
        assert mine == [i for i in ids if i in mine]


@pytest.fixture
async def partitioned(postgres16: Postgres) -> AsyncIterator[Shop]:
    url = postgres16.create_database(f"tests_{uuid4().hex}")
    engine = create_engine(sync_url(url))
    apply(engine, SchemaOptions(partitioned=True, shards=8))
    engine.dispose()
    async with opened("own", async_url(url)) as database:
        yield Shop(database)


async def test_events_arrive_from_a_partitioned_table_with_other_shards(partitioned: Shop) -> None:
    async with partitioned.projecting():
        ids = await partitioned.add(*["a", "b"] * 20)
        await partitioned.sent(ids)

    assert [m.event_id for m in partitioned.bus.messages if m.key == "a"] == ids[::2]


@on("postgres18+psycopg")
async def test_events_arrive_through_a_pooler_in_transaction_mode(
    shop: Shop, pgbouncer: PgBouncer
) -> None:
    address = async_url(pgbouncer.url).set(database=shop.database.url.database)
    dsn = address.set(drivername="postgresql").render_as_string(hide_password=False)
    projectors = [
        OutboxProjector(message_bus=shop.bus, dsn=dsn, config=QUICK, service="orders")
        for _ in range(2)
    ]

    async with asyncio.TaskGroup() as group:
        for projector in projectors:
            group.create_task(projector.run_forever())
        ids = await shop.add(*["a", "b", "c"] * 20)
        await shop.sent(ids, limit=30)
        for projector in projectors:
            projector.stop()

    for key in "abc":
        mine = list(dict.fromkeys(m.event_id for m in shop.bus.messages if m.key == key))
        assert mine == [i for i in ids if i in mine]
