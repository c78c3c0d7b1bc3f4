"""With psycopg BEGIN travels with the claim and COMMIT with the record, and nobody can tell."""

import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import greenlet_spawn

from pillarbox.idempotency import pipeline
from pillarbox.idempotency.answer import Answer
from pillarbox.idempotency.command import opened
from pillarbox.idempotency.decision import Replay
from pillarbox.idempotency.errors import CommandNotCommitted, IdempotencyError
from pillarbox.idempotency.settings import IdempotencySettings
from pillarbox.idempotency.store import CommandStore
from pillarbox.idempotency.stores import store_for
from pillarbox.tenancy import Tenancy
from tests.support.database import Database, on
from tests.support.faultproxy import SERVER, Cut, FaultProxy, Rule, Seen

pytestmark = on("postgres18+psycopg")

ANSWER = Answer(201, (("content-type", "application/json"),), b'{"id":1}')
PLACE = "INSERT INTO orders (id, total, status, version) VALUES ('o-1', 1, 'NEW', 1)"
CLAIM, RECORD = "INSERT INTO idempotency", "UPDATE idempotency"
BACKEND = "SELECT pg_backend_pid()"
TWICE_THE_SAME = (
    "CREATE TEMP TABLE twice (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP;"
    "INSERT INTO twice VALUES (1), (1)"
)
Work = Callable[[Connection], object]


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[AsyncEngine]:
    """An engine with one connection, so that each command finds what the last one left."""
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM idempotency"))
    async with one_connection(database) as found:
        yield found


@asynccontextmanager
async def one_connection(database: Database, **options: Any) -> AsyncIterator[AsyncEngine]:
    async with database.other_engine(pool_size=1, max_overflow=0, **options) as engine:
        yield engine


def store(schema: str | None = None) -> CommandStore:
    return store_for("postgresql", IdempotencySettings(), schema=schema)


def said(*statements: str) -> Work:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    return work


PLACED = said(PLACE)


async def execute(
    engine: AsyncEngine, work: Work = PLACED, key: str = "k-1", commands: CommandStore | None = None
) -> IdempotencyError | None:
    """Claim a key, do the work and commit with an answer."""
    chosen = commands or store()
    async with opened(chosen, engine.sync_engine, Tenancy(), key, "seen") as command:
        await command.claim("default", "ada", "POST /orders")
        assert command.executes
        await greenlet_spawn(lambda: work(command.owner.connection()))
        return await command.commit(ANSWER, None)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The statements that shared a round trip, each with whether COMMIT was with it."""
    taken: list[tuple[str, bool]] = []
    run = pipeline.run_shared

    def noted(driver: Any, statement: str, values: Any, *, commits: bool) -> Any:
        name = RECORD if RECORD in statement else CLAIM
        taken.append((name, commits))
        return run(driver, statement, values, commits=commits)

    monkeypatch.setattr(pipeline, "run_shared", noted)
    return taken


async def backend_of(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        found: int = (await connection.exec_driver_sql(BACKEND)).scalar_one()
        return found


async def test_a_command_shares_two_round_trips(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    assert await execute(engine) is None

    assert shared == [(CLAIM, False), (RECORD, True)]
    assert await database.order_ids() == ["o-1"]
    assert await database.scalar("SELECT state FROM idempotency") == "done"
    assert await database.scalar("SELECT body FROM idempotency") == ANSWER.body


async def test_the_statements_are_prepared_and_found_again_after_all_were_deallocated(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s"
    commands = store()
    counts = []
    for n in range(20):
        await execute(engine, said("SELECT 1"), key=f"k-{n}", commands=commands)
        async with engine.connect() as connection:
            found = await connection.exec_driver_sql(prepared, ("%idempotency%",))
            counts.append(found.scalar_one())
            if n == 12:  # psycopg deallocates all that it has prepared at a rollback
                await connection.rollback()
            await connection.commit()

    assert len(shared) == 40
    assert counts[0] == 0
    assert counts[12] >= 2
    assert counts[13] < 2
    assert counts[-1] >= 2
    assert await database.scalar("SELECT count(*) FROM idempotency WHERE state = 'done'") == 20


async def test_a_repeated_command_leaves_the_statements_prepared(
    database: Database, engine: AsyncEngine
) -> None:
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s"
    commands = store()
    for n in range(8):
        await execute(engine, said("SELECT 1"), key=f"k-{n}", commands=commands)
    async with opened(commands, engine.sync_engine, Tenancy(), "k-1", "seen") as command:
        decision = await command.claim("default", "ada", "POST /orders")
    async with engine.connect() as connection:
        kept = (await connection.exec_driver_sql(prepared, ("%idempotency%",))).scalar_one()

    assert isinstance(decision, Replay)
    assert kept >= 2
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert await database.scalar(locks) == 0


async def test_the_transaction_has_the_engine_s_isolation_level(
    database: Database, shared: list[tuple[str, bool]], engine: AsyncEngine
) -> None:
    seen: list[str] = []

    def look(connection: Connection) -> None:
        seen.append(connection.exec_driver_sql("SHOW transaction_isolation").scalar_one())

    async with one_connection(database, isolation_level="SERIALIZABLE") as strict:
        await execute(strict, look)

    assert seen == ["serializable"]
    assert len(shared) == 2


@pytest.mark.parametrize("name", ["before_cursor_execute", "after_cursor_execute", "do_execute"])
async def test_an_event_hook_sees_both_statements(
    engine: AsyncEngine, shared: list[tuple[str, bool]], name: str
) -> None:
    seen: list[str] = []
    event.listen(engine.sync_engine, name, lambda *given: seen.extend(map(str, given)))

    await execute(engine)

    assert not shared
    assert [given for given in seen if CLAIM in given]
    assert [given for given in seen if RECORD in given]


async def test_echo_shows_both_statements(
    engine: AsyncEngine, shared: list[tuple[str, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        await execute(engine)

    assert not shared
    assert [line for line in caplog.messages if CLAIM in line]
    assert [line for line in caplog.messages if RECORD in line]


async def test_a_hook_on_commits_is_called_before_the_commit(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    def write_too(connection: Connection) -> None:
        connection.exec_driver_sql(PLACE.replace("o-1", "o-2"))

    event.listen(engine.sync_engine, "commit", write_too)
    await execute(engine)

    assert shared == [(CLAIM, False)]
    assert await database.order_ids() == ["o-1", "o-2"]


async def test_a_claim_that_fails_is_sqlalchemy_s_error_and_leaves_the_connection_whole(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    told: list[Any] = []
    event.listen(engine.sync_engine, "handle_error", told.append)
    backend = await backend_of(engine)

    with pytest.raises(ProgrammingError, match="nowhere") as raised:
        await execute(engine, commands=store("nowhere"))

    assert raised.value.orig is not None
    assert [context.sqlalchemy_exception for context in told] == [raised.value]
    assert await execute(engine) is None
    assert await backend_of(engine) == backend
    assert shared[0] == (CLAIM, False)
    assert await database.order_ids() == ["o-1"]


async def test_without_its_row_nothing_is_committed(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    backend = await backend_of(engine)

    failed = await execute(engine, said(PLACE, "DELETE FROM idempotency"))

    assert isinstance(failed, CommandNotCommitted)
    assert shared[-1] == (RECORD, True)
    assert await database.order_ids() == []
    assert await execute(engine) is None
    assert await backend_of(engine) == backend


async def test_a_commit_that_is_refused_commits_nothing(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    backend = await backend_of(engine)

    failed = await execute(engine, said(PLACE, TWICE_THE_SAME))

    assert isinstance(failed, CommandNotCommitted)
    assert shared[-1] == (RECORD, True)
    assert await database.order_ids() == []
    assert await database.scalar("SELECT count(*) FROM idempotency") == 0
    assert await execute(engine) is None
    assert await backend_of(engine) == backend


async def test_a_transaction_that_the_handler_has_spoiled_is_not_committed(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    def spoil(connection: Connection) -> None:
        connection.exec_driver_sql(PLACE)
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1 / 0")

    failed = await execute(engine, spoil)

    assert isinstance(failed, CommandNotCommitted)
    assert await database.order_ids() == []
    assert shared == [(CLAIM, False)]


async def test_a_connection_lost_in_the_claim_is_not_used_again(
    database: Database, engine: AsyncEngine, shared: list[tuple[str, bool]]
) -> None:
    assert database.url.host is not None
    assert database.url.port is not None
    async with FaultProxy(database.url.host, database.url.port) as proxy:
        url = database.url.set(port=proxy.port)
        async with database.other_engine(url, pool_size=1, max_overflow=0) as through:
            backend = await backend_of(through)
            proxy.plan(Rule(SERVER, Seen(CLAIM.encode()), Cut()))

            with pytest.raises(DBAPIError) as raised:
                await execute(through)

            assert raised.value.connection_invalidated
            assert await execute(through) is None
            assert await backend_of(through) != backend
            assert isinstance(through.pool, QueuePool)
            assert through.pool.checkedout() == 0
    assert shared == [(CLAIM, False), (CLAIM, False), (RECORD, True)]
    assert await database.order_ids() == ["o-1"]


async def test_a_server_that_ends_the_connection_meanwhile_is_heard(
    database: Database, engine: AsyncEngine
) -> None:
    """The error is the server's own, not only that the connection is gone."""

    async def end(pid: int) -> None:
        await database.scalar("SELECT pg_terminate_backend(:pid, 5000)", {"pid": pid})

    async with opened(store(), engine.sync_engine, Tenancy(), "k-1", "seen") as command:
        await command.claim("default", "ada", "POST /orders")
        connection = command.owner.connection()
        await end(await greenlet_spawn(lambda: connection.exec_driver_sql(BACKEND).scalar_one()))

        failed = await command.commit(ANSWER, None)

    assert failed is not None
    assert failed.code == "command-unknown"
    assert await execute(engine) is None


@pytest.mark.timeout(30)
async def test_a_connection_that_libpq_gives_up_without_a_word_is_an_error_and_no_endless_wait(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_pgconn: object) -> Generator[Any, Any, list[Any]]:
        yield from ()
        return []

    backend = await backend_of(engine)
    monkeypatch.setattr(pipeline, "fetch_many", nothing)
    with pytest.raises(DBAPIError):
        await execute(engine)
    monkeypatch.undo()

    assert await execute(engine) is None
    assert await backend_of(engine) != backend
