"""What the page on PgBouncer says, through a PgBouncer in transaction mode."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from pillarbox import Pillarbox
from pillarbox.outbox.wakeup import CHANNEL
from pillarbox.servers import PgBouncer

pytestmark = pytest.mark.servers("pgbouncer")

OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "psycopg": {"prepare_threshold": None},
    "asyncpg": {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"__asyncpg_{uuid4()}__",
    },
}
WRITERS: Final = 8
EVENTS: Final = 5


def pooled(pgbouncer: PgBouncer, database_url: str, driver: str) -> Pillarbox:
    direct = make_url(database_url)
    url = make_url(pgbouncer.url).set(
        drivername=f"postgresql+{driver}", username=direct.username, database=direct.database
    )
    engine = create_async_engine(url, connect_args=OPTIONS[driver], poolclass=NullPool)
    return Pillarbox(engine, service="orders")


@pytest.mark.parametrize("driver", OPTIONS)
async def test_events_are_recorded_through_the_pooler(
    pgbouncer: PgBouncer, database_url: str, driver: str
) -> None:
    box = pooled(pgbouncer, database_url, driver)

    async def write(writer: int) -> None:
        for number in range(EVENTS):
            async with box.unit_of_work() as uow:
                await uow.session.execute(text("SELECT 1"))
                await uow.outbox.add(topic="orders.order", payload={"n": number}, key=f"k-{writer}")
                await uow.commit()

    async with box.running(), asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(writer))

    with psycopg.connect(database_url) as direct:
        rows = direct.execute("SELECT key, payload->'n' FROM outbox ORDER BY key, seq").fetchall()
    assert rows == [
        (f"k-{writer}", number) for writer in range(WRITERS) for number in range(EVENTS)
    ]


@pytest.mark.parametrize("driver", OPTIONS)
async def test_a_commit_through_the_pooler_is_told_to_a_direct_listener(
    pgbouncer: PgBouncer, database_url: str, driver: str
) -> None:
    box = pooled(pgbouncer, database_url, driver)
    listener = await psycopg.AsyncConnection.connect(database_url, autocommit=True)

    async with listener, box.running():
        await listener.execute(f"LISTEN {CHANNEL}".encode())
        async with box.unit_of_work() as uow:
            await uow.outbox.add(topic="orders.order", payload={"n": 1})
            await uow.commit()
        heard = [found.payload async for found in listener.notifies(timeout=30, stop_after=1)]

    assert heard == [""]
