"""Tasks after the commit: at least once, and never without the commit."""

import asyncio
from dataclasses import replace
from typing import Any

from pillarbox.consumer.context import Context, Task
from pillarbox.consumer.named_tasks import task_of
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
