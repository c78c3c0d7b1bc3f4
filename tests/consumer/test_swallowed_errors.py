"""A handler that swallows a database's error has aborted the transaction of its whole batch."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from pillarbox.consumer.context import Context
from tests.consumer.rig import QUICK, Effect, Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")

ONE_LANE = replace(QUICK, lanes=1, max_attempts=1)


async def write(event: dict[str, Any], ctx: Context) -> None:
    """Write an effect at once, so that nothing is left for the batch's end to send."""
    row = {"message_id": ctx.envelope.event_id, "key": "", "n": event["n"]}
    await ctx.session.execute(insert(Effect).values(row))


async def fail_in_silence(ctx: Context) -> None:
    """Break a constraint, and go on as if nothing had happened."""
    with suppress(IntegrityError):
        await ctx.session.execute(insert(Effect).values(message_id=None, key="", n=0))


async def test_an_error_that_a_handler_swallows_costs_nobody_else_the_effect(shop: Shop) -> None:
    """The COMMIT was answered with a rollback, and all were acknowledged without an effect."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await write(event, ctx)
        if ctx.envelope.event_id == "bad":
            await fail_in_silence(ctx)

    for message_id in ("m0", "m1", "m2", "bad"):
        shop.send(message_id)
    await shop.loop(handler, ONE_LANE).drain()

    assert await shop.effects() == ["m0", "m1", "m2"]
    assert await shop.count("inbox") == 3
    assert await shop.count("inbox_parked", "message_id = 'bad' AND reason = 'handler-failed'") == 1
    assert shop.seen.outcomes == {"new": 3, "failed": 1, "parked": 1}


async def test_an_error_that_ends_in_a_savepoint_is_the_handler_s_own_affair(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await write(event, ctx)
        with suppress(IntegrityError):
            async with ctx.session.begin_nested():
                await ctx.session.execute(insert(Effect).values(message_id=None, key="", n=0))

    for message_id in ("m0", "m1", "m2"):
        shop.send(message_id, key=message_id)
    await shop.loop(handler, ONE_LANE).drain()

    assert await shop.effects() == ["m0", "m1", "m2"]
    assert shop.seen.outcomes == {"new": 3}
