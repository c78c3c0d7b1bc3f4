import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pillarbox import SqlAlchemyOutbox
from pillarbox.database import sync_url
from pillarbox.outbox.notify import Notifier
from pillarbox.outbox.wakeup import CHANNEL, wakeup_of
from pillarbox.servers.ports import free_ports
from tests.support.database import Database, on, on_postgres

MARK = "that was all"
LONG = timedelta(hours=1)


class Ear:
    """Another process's connection that listens, and can say where it has got to."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def first(self) -> str:
        """Wait for one notification."""
        async for heard in self._connection.notifies(timeout=30, stop_after=1):
            return heard.payload
        pytest.fail("no notification within 30 seconds")

    async def rest(self) -> list[str]:
        """Return what came so far: notifications arrive in the order of their commits."""
        await self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, MARK))
        heard = []
        async for notification in self._connection.notifies(timeout=30):
            if notification.payload == MARK:
                break
            heard.append(notification.payload)
        return heard


@asynccontextmanager
async def listening(database: Database) -> AsyncIterator[Ear]:
    url = sync_url(database.url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        await connection.execute(f"LISTEN {CHANNEL}".encode())
        yield Ear(connection)


@asynccontextmanager
async def notifying(engine: AsyncEngine, quiet: timedelta) -> AsyncIterator[None]:
    notifier = Notifier(engine, quiet=quiet, pause_after_error=timedelta())
    task = asyncio.create_task(notifier.run())
    await asyncio.sleep(0)  # lets the task begin to listen
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def record(database: Database, *, commit: bool = True) -> None:
    async with database.sessions() as session:
        await SqlAlchemyOutbox(session).add(topic="orders.order", payload={"total": 1})
        await session.commit() if commit else await session.rollback()


@on_postgres
async def test_another_process_hears_of_a_commit(database: Database) -> None:
    async with listening(database) as ear, notifying(database.engine, LONG):
        await record(database)

        assert await ear.first() == ""


@on_postgres
async def test_many_commits_within_the_quiet_period_are_told_once(database: Database) -> None:
    async with listening(database) as ear, notifying(database.engine, LONG):
        for _ in range(20):
            await record(database)

        assert await ear.first() == ""
        assert await ear.rest() == []


@on_postgres
async def test_a_commit_after_the_quiet_period_is_told_again(database: Database) -> None:
    async with listening(database) as ear, notifying(database.engine, timedelta()):
        await record(database)
        await ear.first()
        await record(database)

        assert await ear.first() == ""


@on_postgres
async def test_a_rollback_is_told_to_nobody(database: Database) -> None:
    async with listening(database) as ear, notifying(database.engine, timedelta()):
        await record(database, commit=False)

        assert await ear.rest() == []


@on_postgres
async def test_neither_a_rollback_nor_a_commit_without_events_wakes_a_waiter(
    database: Database,
) -> None:
    with wakeup_of(database.engine).listen() as listener:
        await record(database, commit=False)
        async with database.sessions() as session:
            await session.connection()
            await session.commit()

        waiting = asyncio.ensure_future(listener.wait())
        await asyncio.sleep(0)
        assert not waiting.done()

        await record(database)
        await asyncio.wait_for(waiting, timeout=30)


@on_postgres
async def test_the_notification_is_no_part_of_the_business_transaction(database: Database) -> None:
    isolation_levels = []

    @event.listens_for(database.engine.sync_engine, "before_cursor_execute")
    def executed(connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        if "pg_notify" in statement:
            isolation_levels.append(connection.get_execution_options().get("isolation_level"))

    async with listening(database) as ear, notifying(database.engine, LONG):
        await record(database)
        await ear.first()

    assert isolation_levels == ["AUTOCOMMIT"]


async def test_a_database_that_is_down_is_logged_and_survived() -> None:
    logged = asyncio.Event()
    lines = []

    class Watcher(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            lines.append(line.getMessage())
            logged.set()

    port = free_ports(["client"])["client"]
    engine = create_async_engine(f"postgresql+psycopg://nobody@127.0.0.1:{port}/none")
    watcher = Watcher()
    log = logging.getLogger("pillarbox.outbox.notify")
    log.addHandler(watcher)
    try:
        async with notifying(engine, timedelta()):
            for _ in range(2):
                logged.clear()
                wakeup_of(engine).tell()
                await asyncio.wait_for(logged.wait(), timeout=30)
    finally:
        log.removeHandler(watcher)
        await engine.dispose()

    assert lines == ["notify_failed", "notify_failed"]


@on("sqlite+aiosqlite")
async def test_a_database_without_notifications_needs_no_notifier(database: Database) -> None:
    await asyncio.wait_for(Notifier(database.engine).run(), timeout=30)
