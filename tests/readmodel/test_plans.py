"""What a model asks the log for costs the same, however much lies behind it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from pillarbox.event.incoming import DEFAULT_RULES
from pillarbox.readmodel.log import Log
from pillarbox.readmodel.position import Gap, Position
from tests.readmodel.rig import Rig
from tests.support.database import on

FILL = text(
    "INSERT INTO outbox (seq, occurred_at, shard_hash, id, status, event_type, topic, key) "
    "SELECT n, now(), 0, gen_random_uuid(), 'SENT', 'Deposited', 't', 'k' "
    "FROM generate_series(1, 20000) n"
)
# The numbers were drawn, as far as anybody who asks the sequence knows.
DRAWN = text("SELECT setval('outbox_seq', 20000)")
AT = Position(19_990, (Gap(7, 8, (1,)), Gap(10_000, 10_003, (1,))))


Ask = Callable[[Log, AsyncSession], Awaitable[object]]
ASKED: dict[str, tuple[Ask, int]] = {
    "read": (lambda log, session: log.read(session, AT, 100), 17),
    "read_key": (lambda log, session: log.read_key(session, ("default", "k"), 7, 16), 10),
    "beginning": (lambda log, session: log.beginning(session), 2),
    "newest": (lambda log, session: log.newest(session), 1),
}
BY_INDEX = {"ix_outbox_seq"}


async def fill(connection: AsyncConnection) -> None:
    for statement in (FILL, DRAWN):
        await connection.execute(statement)


@asynccontextmanager
async def heard(rig: Rig) -> AsyncIterator[list[tuple[str, Any]]]:
    """Collect the statements on the log while something is asked."""
    asked: list[tuple[str, Any]] = []
    engine = rig.database.engine.sync_engine

    def hear(
        connection: Connection, cursor: Any, statement: str, parameters: Any, *rest: Any
    ) -> None:
        del connection, cursor, rest
        if "outbox" in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", hear)


def new_log() -> Log:
    return Log(["Deposited"], schema=None, source="s", rules=DEFAULT_RULES)


@on("postgres18+psycopg")
@pytest.mark.parametrize("asked", ASKED)
async def test_the_log_is_read_by_its_index_alone(rig: Rig, asked: str) -> None:
    async with rig.database.engine.begin() as connection:
        await fill(connection)
        await connection.exec_driver_sql("ANALYZE outbox")
    ask, rows = ASKED[asked]
    async with heard(rig) as statements, rig.database.sessions() as session:
        await ask(new_log(), session)
    plans = [await explained(rig, *statement) for statement in statements]

    read = [node for plan in plans for node in nodes(plan) if node.get("Relation Name") == "outbox"]
    assert read
    assert {node.get("Index Name") for node in read if "Index Name" in node} <= BY_INDEX
    assert not [node for node in read if node["Node Type"] == "Seq Scan"], plans
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) == rows


async def explained(rig: Rig, statement: str, parameters: Any) -> Any:
    async with rig.database.engine.connect() as connection:
        plan = await connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        )
        return plan.scalar_one()


@on("postgres18+psycopg")
async def test_a_read_gives_what_is_above_and_what_was_missing(rig: Rig) -> None:
    async with rig.database.engine.begin() as connection:
        await fill(connection)
    async with rig.database.sessions() as session:
        batch = await new_log().read(session, AT, 100)

    assert len(batch.entries) == 10 + 2 + 4
    assert batch.cut is None


@on("postgres18+psycopg")
async def test_a_late_transaction_of_any_size_is_read_in_parts(rig: Rig) -> None:
    """It was once read as a whole, whatever memory that took."""
    async with rig.database.engine.begin() as connection:
        await fill(connection)
    after = Position(19_990, (Gap(7, 7, (1,)), Gap(11, 15_000, (1,))))
    async with heard(rig) as statements, rig.database.sessions() as session:
        batch = await new_log().read(session, after, 100)
    plans = [await explained(rig, *statement) for statement in statements]

    assert [entry.seq for entry in batch.entries] == [7, *range(11, 110)]
    assert batch.cut == 109
    read = [node for plan in plans for node in nodes(plan) if node.get("Relation Name") == "outbox"]
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) <= 112


@on("sqlite+aiosqlite")
@pytest.mark.parametrize("asked", ["read", "beginning", "newest"])
async def test_the_log_of_sqlite_is_read_by_its_index(rig: Rig, asked: str) -> None:
    ask, _ = ASKED[asked]
    async with heard(rig) as statements, rig.database.sessions() as session:
        await ask(new_log(), session)
    ((statement, parameters),) = statements
    async with rig.database.engine.connect() as connection:
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        plan = "\n".join(str(row[-1]) for row in rows)

    assert "USING INDEX ix_outbox_seq" in plan or "USING COVERING INDEX ix_outbox_seq" in plan, plan


def nodes(plan: Any) -> list[dict[str, Any]]:
    found = json.loads(plan) if isinstance(plan, str) else plan
    todo, seen = [found[0]["Plan"]], []
    while todo:
        node = todo.pop()
        seen.append(node)
        todo += node.get("Plans", [])
    return seen
