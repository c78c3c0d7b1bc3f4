"""A claim through a session reads by the claim index, past a backlog and rows that were sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from tests.projector_stores.rig import Rig, numbers

Statements = list[tuple[str, Any]]
_KEYS = [f"order-{n}" for n in range(40)]

on_both = pytest.mark.parametrize("rig", ["session+psycopg", "session+sqlite"], indirect=True)
on_sqlite = pytest.mark.parametrize("rig", ["session+sqlite"], indirect=True)


@asynccontextmanager
async def watched(rig: Rig) -> AsyncIterator[Statements]:
    """Collect the statements on the outbox while something is done."""
    seen: Statements = []

    def executing(
        connection: Connection, cursor: object, statement: str, parameters: Any, *rest: object
    ) -> None:
        if " outbox " in statement.replace("\n", " "):
            seen.append((statement, parameters))

    event.listen(rig.database.engine.sync_engine, "before_cursor_execute", executing)
    yield seen
    event.remove(rig.database.engine.sync_engine, "before_cursor_execute", executing)


async def plan_of(rig: Rig, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN " if rig.database.is_postgres else "EXPLAIN QUERY PLAN "
    async with rig.database.engine.connect() as connection:
        rows = await connection.exec_driver_sql(explain + statement, parameters)
        return "\n".join(str(row[-1]) for row in rows)


async def backlog(rig: Rig) -> None:
    for place, key in enumerate(_KEYS):
        await rig.record(*range(place * 100 + 1, place * 100 + 51), key=key)
        await rig.record(*range(place * 100 + 51, place * 100 + 101), key=key, status="SENT")
    await rig.run(text("ANALYZE"))


@on_both
async def test_a_claim_reads_by_its_index(rig: Rig) -> None:
    await backlog(rig)
    owner = await rig.owner()
    in_hand = set(numbers(await owner.claim(500)))

    async with watched(rig) as statements:
        await owner.claim_once(500, in_hand=in_hand)

    assert len(statements) == 2
    for statement, parameters in statements:
        plan = await plan_of(rig, statement, parameters)
        assert "ix_outbox_claim" in plan
        assert "Seq Scan on outbox " not in plan
        assert "SCAN o" not in plan


@on_sqlite
async def test_settling_reads_by_the_primary_key(rig: Rig) -> None:
    await backlog(rig)
    owner = await rig.owner()
    events = await owner.claim(16)

    async with watched(rig) as statements:
        await owner.settle(sent=events)

    ((statement, parameters),) = statements
    plan = await plan_of(rig, statement, parameters)
    assert "SEARCH outbox USING INDEX sqlite_autoindex_outbox_1" in plan
