"""A task that is cancelled while it gives a sign that it lives: PostgreSQL may keep the sign waiting."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from pillarbox.consumer import tasks
from pillarbox.consumer.context import Context
from pillarbox.consumer.named_tasks import task_of
from tests.consumer.rig import Shop
from tests.support.database import on_postgres
from tests.support.waiting import until


@on_postgres
async def test_a_task_that_is_cancelled_does_not_wait_for_a_sign_that_it_gives(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that had gone silent held up the end of the process for a minute."""
    monkeypatch.setattr(tasks, "HELD", timedelta(seconds=0.3))
    begun = asyncio.Event()

    async def mail() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        ctx.after_commit("mail")

    async def is_waiting() -> bool:
        mine = "datname = current_database() AND wait_event_type = 'Lock'"
        return (
            await shop.count("pg_stat_activity", f"{mine} AND query LIKE 'UPDATE inbox_task%'") > 0
        )

    shop.send("m1")
    loop = shop.loop(handler, tasks={"mail": task_of("mail", mail)})
    killed = asyncio.ensure_future(loop.run_forever())
    await begun.wait()
    async with shop.database.engine.begin() as connection:
        await connection.execute(text("SELECT 1 FROM inbox_task FOR UPDATE"))
        await until(is_waiting, "the sign waits for the row")
        killed.cancel()
        ended, _ = await asyncio.wait({killed}, timeout=10)
    await asyncio.wait({killed})

    assert ended == {killed}
