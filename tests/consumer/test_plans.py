"""What the consumer asks for each batch and each look costs the same, however many rows wait."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox.consumer.parked import ParkedMessages
from pillarbox.event.ids import id_maker
from tests.consumer.hands import item
from tests.consumer.rig import CONSUMER, Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")

# One key with 20,000 messages, the last one parked, and 50 others with a time of their own.
FILL = text(
    "INSERT INTO inbox_parked (tenant_id, parked_id, state, reason, consumer, message_id, topic, "
    "key, holds_key, due_at) SELECT 'default', gen_random_uuid(), "
    "CASE WHEN n = 20000 THEN 'parked' ELSE 'waiting' END, 'behind', :consumer, 'm' || n, 't', "
    "CASE WHEN n <= 20000 THEN 'hot' ELSE 'key-' || n END, 1, "
    "CASE WHEN n > 20000 THEN now() END FROM generate_series(1, 20050) n"
)
NOW = datetime.now(UTC)
HEAD: Any = SimpleNamespace(tenant_id="default", key="hot", seq=0)

Question = Callable[[ParkedMessages, AsyncSession], Awaitable[Any]]
QUESTIONS: dict[str, Question] = {
    "which keys are held, and which messages are there": lambda parked, session: parked.look_up(
        session, "default", [item(1, "hot"), *(item(n, f"key-{n}") for n in range(2, 140))]
    ),
    "what is due": lambda parked, session: session.execute(parked.due(NOW)),
    "who is behind": lambda parked, session: parked.behind(session, HEAD, 100, 1_000_000),
    "who is next": lambda parked, session: parked.go_on(session, "default", "hot", NOW),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_question_reads_by_an_index_and_passes_over_what_is_behind(
    shop: Shop, question: str
) -> None:
    async with shop.database.engine.begin() as connection:
        # Without room between its rows a scan of the whole table looks cheapest.
        await connection.exec_driver_sql("TRUNCATE inbox_parked")
        await connection.execute(FILL, {"consumer": CONSUMER})
        await connection.exec_driver_sql("ANALYZE inbox_parked")
    parked = ParkedMessages(CONSUMER, id_maker())

    async with shop.database.sessions() as session:
        asked = await _asked(session, QUESTIONS[question], parked)
        plans = [await _plan(session, *found) for found in asked]

    assert plans
    for plan in plans:
        read = [node for node in _nodes(plan) if node.get("Relation Name") == "inbox_parked"]
        assert not [node for node in read if node["Node Type"] == "Seq Scan"], plan
        rows = sum(node["Actual Rows"] * node["Actual Loops"] for node in read)
        assert rows <= 150, plan


async def _asked(
    session: AsyncSession, question: Question, parked: ParkedMessages
) -> list[tuple[str, Any]]:
    """Return the statements about the table that a question sends."""
    found: list[tuple[str, Any]] = []
    connection = (await session.connection()).sync_connection
    assert connection is not None

    def sent(
        _c: Connection, _cursor: Any, statement: str, parameters: Any, _x: Any, _many: bool
    ) -> None:
        if "inbox_parked" in statement:
            found.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", sent)
    await question(parked, session)
    event.remove(connection, "before_cursor_execute", sent)
    return found


async def _plan(session: AsyncSession, statement: str, parameters: Any) -> dict[str, Any]:
    connection = await session.connection()
    explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
    found = (await connection.exec_driver_sql(explained, parameters)).scalar_one()
    plan: dict[str, Any] = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for part in plan.get("Plans", ()) for node in _nodes(part))]
