"""Tasks after the commit: at least once, and never without the commit."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from pillarbox.consumer import tasks
from pillarbox.consumer.context import Context, Task
from pillarbox.consumer.named_tasks import task_of
from pillarbox.consumer.tasks import StoredTasks
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")


async def test_a_task_is_done_after_the_commit_and_then_forgotten(shop: Shop) -> None:
    seen: list[tuple[str, int]] = []

    async def mail(to: str, n: int) -> None:
        assert await shop.effects() == ["m1"]
        seen.append((to, n))

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        ctx.after_commit("mail", to="jane@example.com", n=event["n"])

    shop.send("m1", n=3)
    await shop.loop(handler, tasks={"mail": task_of("mail", mail)}).drain()

    assert seen == [("jane@example.com", 3)]
    assert await shop.count("inbox_task") == 0


async def test_a_task_of_a_handler_that_fails_is_never_done(shop: Shop) -> None:
    seen: list[str] = []

    async def mail(to: str) -> None:
        seen.append(to)

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        ctx.after_commit("mail", to=ctx.envelope.event_id)
        if ctx.envelope.event_id == "bad":
            raise ValueError("in this test")

    shop.send("bad", key="bad")
    shop.send("good", key="good")
    config = replace(QUICK, max_attempts=1, lanes=1)
    await shop.loop(handler, config, tasks={"mail": task_of("mail", mail)}).drain()

    assert seen == ["good"]


async def test_a_task_that_fails_comes_again(shop: Shop) -> None:
    tries: list[int] = []

    async def mail() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("the mail server is away")

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        ctx.after_commit("mail")

    shop.send("m1")
    async with shop.running(shop.loop(handler, tasks={"mail": task_of("mail", mail)})):
        await until(lambda: _ended(shop, 3), "the task is done", limit=20)

    assert len(tries) == 3
    assert await shop.count("inbox_task") == 0
    assert shop.seen.tasks == [("mail", False), ("mail", False), ("mail", True)]


async def test_a_task_of_a_process_that_died_comes_again_soon(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came again after a minute, which is the limit of a task."""
    monkeypatch.setattr(tasks, "HELD", timedelta(seconds=0.5))
    begun: asyncio.Queue[int] = asyncio.Queue()
    hangs = True

    async def mail() -> None:
        begun.put_nowait(1)
        while hangs:
            await asyncio.Event().wait()

    shop.send("m1")
    loop = shop.loop(_leave_a_mail, tasks={"mail": task_of("mail", mail)})
    killed = asyncio.ensure_future(loop.run_forever())
    await begun.get()
    killed.cancel()
    await asyncio.wait({killed})
    hangs = False

    async with shop.running(shop.loop(tasks={"mail": task_of("mail", mail)})):
        async with asyncio.timeout(20):
            await begun.get()
        await until(lambda: _none_left(shop), "the task is done", limit=20)


async def test_a_task_that_takes_long_is_done_by_nobody_else_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "HELD", timedelta(seconds=2))
    monkeypatch.setattr(tasks, "_SIGNS", 20)
    begun, proceed, seen = asyncio.Queue[int](), asyncio.Event(), set[str]()

    async def mail() -> None:
        begun.put_nowait(1)
        await proceed.wait()

    async def is_put_off() -> bool:
        """Tell whether the time is over for which it was taken at first."""
        async with shop.database.sessions() as session:
            seen.update(map(str, await session.scalars(text("SELECT due_at FROM inbox_task"))))
        return len(seen) > 21

    shop.send("m1")
    known = {"mail": task_of("mail", mail)}
    async with shop.running(shop.loop(_leave_a_mail, tasks=known)):
        await begun.get()
        async with shop.running(shop.loop(tasks=known)):
            await until(is_put_off, "the task is put off again and again", limit=60)
            proceed.set()
            await until(lambda: _none_left(shop), "the task is done", limit=20)

    assert begun.empty()


async def test_a_task_that_cannot_be_held_is_done_all_the_same_and_that_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "HELD", timedelta(seconds=0.06))
    later, asked = StoredTasks._later, asyncio.Event()

    def fail_at_second_call(stored: StoredTasks) -> Any:
        if asked.is_set():
            raise ZeroDivisionError("in this test")
        return later(stored)

    async def mail() -> None:
        asked.set()
        await held

    monkeypatch.setattr(StoredTasks, "_later", fail_at_second_call)
    hold_on_to, held = StoredTasks._hold_on_to, asyncio.get_running_loop().create_future()

    async def holding(stored: StoredTasks, row: Any, over: asyncio.Event) -> None:
        try:
            await hold_on_to(stored, row, over)
        finally:
            held.set_result(None)

    monkeypatch.setattr(StoredTasks, "_hold_on_to", holding)
    shop.send("m1")
    await shop.loop(_leave_a_mail, tasks={"mail": task_of("mail", mail)}).drain()

    assert await shop.count("inbox_task") == 0
    assert shop.seen.tasks == [("mail", True)]
    [told] = [record for record in caplog.records if record.msg == "task_not_held"]
    assert told.__dict__["error"] == "in this test"


async def _leave_a_mail(event: dict[str, Any], ctx: Context) -> None:
    del event
    ctx.after_commit("mail")


async def test_a_drain_ends_though_a_task_fails_again_and_again(shop: Shop) -> None:
    async def mail() -> None:
        raise ConnectionError("the mail server is away")

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        ctx.after_commit("mail")

    shop.send("m1")
    config = replace(QUICK, retry_delay=0.001, retry_delay_max=0.001)
    async with asyncio.timeout(20):
        await shop.loop(handler, config, tasks={"mail": task_of("mail", mail)}).drain()

    assert await shop.count("inbox_task", "error_class = 'ConnectionError'") == 1


async def test_a_task_that_nobody_knows_stays_until_somebody_does(shop: Shop) -> None:
    done = asyncio.Event()

    async def later() -> None:
        done.set()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        ctx.after_commit("later")

    shop.send("m1")
    await shop.loop(handler).drain()
    assert await shop.count("inbox_task", "error_class = 'UnknownTask'") == 1

    async with shop.running(shop.loop(tasks={"later": Task("later", later)})):
        async with asyncio.timeout(10):
            await done.wait()
        await until(lambda: _none_left(shop), "the task is done")


async def _none_left(shop: Shop) -> bool:
    return await shop.count("inbox_task") == 0


async def _ended(shop: Shop, times: int) -> bool:
    return len(shop.seen.tasks) == times
