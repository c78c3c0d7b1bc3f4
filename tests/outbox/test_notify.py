import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pillarbox import SqlAlchemyOutbox
from pillarbox.database import sync_url
from pillarbox.outbox.notify import Notifier
from pillarbox.outbox.wakeup import CHANNEL, wakeup_of
from pillarbox.servers.ports import free_ports
from tests.support.database import Database, on, on_postgres
from tests.support.waiting import until

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

    def executed(connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        if "pg_notify" in statement:
            isolation_levels.append(connection.get_execution_options().get("isolation_level"))

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        async with listening(database) as ear, notifying(database.engine, LONG):
            await record(database)
            await ear.first()
    finally:
        event.remove(Engine, "before_cursor_execute", executed)

    assert isolation_levels == ["AUTOCOMMIT"]


@on_postgres
async def test_a_commit_is_told_although_the_applications_pool_is_used_up(
    database: Database,
) -> None:
    engine = create_async_engine(database.url, pool_size=1, max_overflow=0)
    try:
        async with listening(database) as ear, notifying(engine, LONG), engine.connect():
            wakeup_of(engine).tell()

            assert await ear.first() == ""
    finally:
        await engine.dispose()


@on_postgres
async def test_a_connection_that_was_cut_meanwhile_costs_no_wake_up(database: Database) -> None:
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE query LIKE '%pg_notify(''pillarbox%' AND pid <> pg_backend_pid()"
    )
    async with listening(database) as ear, notifying(database.engine, timedelta()):
        await record(database)
        await ear.first()
        assert await database.scalar(cut)
        await record(database)

        assert await ear.first() == ""


@on_postgres
async def test_the_connection_ends_with_the_notifier(database: Database) -> None:
    engine = create_async_engine(database.url)
    try:
        async with listening(database) as ear, notifying(engine, LONG):
            wakeup_of(engine).tell()
            await ear.first()
    finally:
        await engine.dispose()

    async def gone() -> bool:
        notifying = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE query LIKE '%pg_notify(''pillarbox%' AND pid <> pg_backend_pid()"
        )
        return not await database.scalar(notifying)

    await until(gone, "the notifier's connection is closed")


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


@on("postgres18+psycopg")
@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_comes_with_a_wake_up_ends_it(
    database: Database, turns: int
) -> None:
    task = asyncio.create_task(Notifier(database.engine).run())
    await asyncio.sleep(0)
    wakeup_of(database.engine).tell()
    for _ in range(turns):
        await asyncio.sleep(0)

    task.cancel()

    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


@on("sqlite+aiosqlite")
async def test_a_database_without_notifications_needs_no_notifier(database: Database) -> None:
    await asyncio.wait_for(Notifier(database.engine).run(), timeout=30)
