"""A handler or a task that ends in a cancellation which nobody asked for fails like any other."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pillarbox.consumer.context import Context
from pillarbox.consumer.named_tasks import task_of
from pillarbox.consumer.signals import Retry
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")


async def await_what_was_cancelled() -> None:
    """Do what a handler does whose helper was cancelled by a library of its own."""
    helper = asyncio.ensure_future(asyncio.Event().wait())
    helper.cancel()
    await helper


async def test_a_handler_that_is_cancelled_by_itself_is_parked_and_others_go_on(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "bad":
            await await_what_was_cancelled()
        await record(event, ctx)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    async with asyncio.timeout(20):
        await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=2)).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    cancelled = "message_id = 'bad' AND error_class = 'CancelledByItself' AND attempts = 2"
    assert await shop.count("inbox_parked", cancelled) == 1


async def test_messages_come_back_after_one_that_was_cancelled_by_itself(shop: Shop) -> None:
    tries: dict[str, int] = {}

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        message_id = ctx.envelope.event_id
        tries[message_id] = tries.get(message_id, 0) + 1
        if tries[message_id] == 1:
            raise Retry(after=timedelta(milliseconds=10))
        if message_id == "bad":
            await await_what_was_cancelled()
        await record(event, ctx)

    for message_id in ("bad", "m0", "m1"):
        shop.send(message_id, key=message_id)
    config = replace(QUICK, hold_limit=0.001, max_attempts=2)

    async with shop.running(shop.loop(handler, config)):
        await until(lambda: shop.effects_are(2), "the others have come back")
        await until(lambda: _is_parked(shop), "the bad one is parked")


async def test_a_task_that_is_cancelled_by_itself_comes_again_and_others_are_done(
    shop: Shop,
) -> None:
    done: list[str] = []

    async def mail(to: str) -> None:
        if to == "bad" and "m1" not in done:
            await await_what_was_cancelled()
        done.append(to)

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        ctx.after_commit("mail", to=ctx.envelope.event_id)

    async with shop.running(shop.loop(handler, tasks={"mail": task_of("mail", mail)})):
        shop.send("bad", key="bad")
        await until(lambda: _has_failed(shop), "the bad one has failed")
        shop.send("m1", key="m1")
        await until(lambda: _none_left(shop), "both are done")

    assert done == ["m1", "bad"]


async def _is_parked(shop: Shop) -> bool:
    return await shop.count("inbox_parked", "state = 'parked'") == 1


async def _has_failed(shop: Shop) -> bool:
    return ("mail", False) in shop.seen.tasks


async def _none_left(shop: Shop) -> bool:
    return ("mail", True) in shop.seen.tasks and await shop.count("inbox_task") == 0
