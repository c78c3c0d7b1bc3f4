"""An exception, or the end of the process, at each step: one effect for each message."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pillarbox.consumer.context import Context
from tests.consumer.rig import QUICK, Counting, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")


class Crash(BaseException):
    """End the loop where it stands, as a signal would: no handler of errors may catch it."""


def once(act: Callable[[], None]) -> Callable[[], None]:
    left = [act]

    def run() -> None:
        if left:
            left.pop()()

    return run


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("step", ["beginning", "handler", "committed", "acknowledged"])
async def test_a_loop_that_ends_at_a_step_leaves_one_effect_for_each(shop: Shop, step: str) -> None:
    seen = Counting(at={step: once(crash)})

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        seen._act("handler")

    for n in range(30):
        shop.send(f"m{n}", key=f"k{n % 3}", n=n)
    config = replace(QUICK, batch_size=5)

    with pytest.raises(BaseExceptionGroup) as ended:
        await shop.loop(handler, config, observer=seen).run_forever()
    assert ended.group_contains(Crash)
    await shop.loop(handler, config).drain()

    for key in range(3):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(30) if n % 3 == key]


@pytest.mark.parametrize("step", ["beginning", "handler", "committed", "acknowledged"])
async def test_a_loop_that_is_cancelled_at_a_step_leaves_one_effect_for_each(
    shop: Shop, step: str
) -> None:
    reached = asyncio.Event()
    seen = Counting(at={step: reached.set})

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        seen._act("handler")

    for n in range(30):
        shop.send(f"m{n}", key=f"k{n % 3}", n=n)
    config = replace(QUICK, batch_size=5)

    running = asyncio.create_task(shop.loop(handler, config, observer=seen).run_forever())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await shop.loop(handler, config).drain()

    for key in range(3):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(30) if n % 3 == key]
