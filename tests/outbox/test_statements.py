"""The insert goes past SQLAlchemy's execution only where nobody could tell the difference."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.pool import QueuePool

from pillarbox import SQLAlchemyUnitOfWork
from pillarbox.outbox import statements
from pillarbox.outbox.settings import CaptureSettings
from tests.support.database import Database, on_postgres
from tests.support.orders import Order

pytestmark = on_postgres
INSERT = "INSERT INTO outbox"
NO_TABLE = CaptureSettings(schema="nowhere")


async def record(database: Database, settings: CaptureSettings | None = None) -> None:
    async with SQLAlchemyUnitOfWork(database.sessions, settings=settings) as uow:
        await uow.repository(Order).save(Order.place("o-1"))
        await uow.commit()


@contextmanager
def hooked(database: Database, name: str) -> Iterator[list[tuple[Any, ...]]]:
    """Note what a hook on the engine is called with."""
    calls: list[tuple[Any, ...]] = []

    def hear(*given: Any) -> None:
        calls.append(given)

    engine = database.engine.sync_engine
    event.listen(engine, name, hear)
    try:
        yield calls
    finally:
        event.remove(engine, name, hear)


def ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for each statement whether the driver's cursor ran it."""
    taken: list[bool] = []
    is_plain = statements.is_plain

    def noted(connection: Connection) -> bool:
        taken.append(is_plain(connection))
        return taken[-1]

    monkeypatch.setattr(statements, "is_plain", noted)
    return taken


async def test_the_drivers_cursor_runs_the_insert(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = ways(monkeypatch)

    await record(database)

    assert taken == [True]
    assert await database.event_types() == ["OrderPlaced"]


@pytest.mark.parametrize("name", ["before_cursor_execute", "after_cursor_execute", "do_execute"])
async def test_an_event_hook_sees_the_insert(database: Database, name: str) -> None:
    with hooked(database, name) as calls:
        await record(database)

    assert [call for call in calls if any(INSERT in str(given) for given in call)]


async def test_a_hook_on_other_events_leaves_the_cursor_the_insert(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = ways(monkeypatch)

    with hooked(database, "begin") as calls:
        await record(database)

    assert calls
    assert taken == [True]


async def test_echo_shows_the_insert(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        await record(database)

    assert [line for line in caplog.messages if INSERT in line]


async def test_an_event_in_a_savepoint_takes_the_same_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = ways(monkeypatch)

    async with SQLAlchemyUnitOfWork(database.sessions) as uow:
        async with uow.savepoint():
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.outbox.flush()
        await uow.commit()

    assert taken == [True]
    assert await database.event_types() == ["OrderPlaced"]


async def test_an_error_is_the_same_on_both_ways(database: Database) -> None:
    errors: list[DBAPIError] = []

    for is_hooked in (False, True):
        with ExitStack() as stack:
            if is_hooked:
                stack.enter_context(hooked(database, "before_cursor_execute"))
            with pytest.raises(ProgrammingError) as raised:
                await record(database, NO_TABLE)
        errors.append(raised.value)

    on_cursor, ordinary = errors
    assert type(on_cursor.orig) is type(ordinary.orig)
    assert on_cursor.statement == ordinary.statement
    assert _without_parameters(on_cursor) == _without_parameters(ordinary)
    assert "[parameters: " in str(on_cursor)
    assert isinstance(on_cursor.__cause__, type(ordinary.__cause__))


def _without_parameters(error: DBAPIError) -> str:
    return re.sub(r"\[parameters: .*\]", "", str(error), flags=re.DOTALL)


async def test_an_error_reaches_the_hook_for_errors(database: Database) -> None:
    with hooked(database, "handle_error") as calls, pytest.raises(ProgrammingError):
        await record(database, NO_TABLE)

    assert [context for (context,) in calls if '"nowhere".outbox' in context.statement]


async def test_a_connection_lost_in_the_insert_makes_the_pool_distrust_the_others(
    database: Database,
) -> None:
    async with database.other_engine(database.url) as engine:
        sessions = async_sessionmaker(engine, expire_on_commit=False)
        async with engine.connect() as idle:
            before = (await idle.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        async with SQLAlchemyUnitOfWork(sessions) as uow, sessions() as other:
            await other.execute(text("SELECT 1"))
            await uow.repository(Order).save(Order.place("o-1"))
            await uow.session.flush()
            lost = (await uow.session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            await database.scalar("SELECT pg_terminate_backend(:pid, 5000)", {"pid": lost})
            with pytest.raises(DBAPIError) as raised:
                await uow.commit()
        async with engine.connect() as anew:
            after = (await anew.execute(text("SELECT pg_backend_pid()"))).scalar_one()

        assert raised.value.connection_invalidated
        assert after not in (before, lost)
        assert isinstance(engine.pool, QueuePool)
        assert engine.pool.checkedout() == 0
