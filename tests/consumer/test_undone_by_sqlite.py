"""SQLite may undo a whole transaction when a statement fails: nothing of it passes for done."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from pillarbox.consumer.context import Context
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.no_room import run_out_of_room


@on("sqlite+aiosqlite")
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_what_sqlite_has_undone_by_itself_is_done_again(shop: Shop, swallowed: bool) -> None:
    """What had been done before in its transaction was acknowledged, and had no effect."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.session.flush()
        if ctx.envelope.event_id == "bad":
            with suppress(*([OperationalError] if swallowed else [])):
                await run_out_of_room(ctx.session)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    async with asyncio.timeout(60):
        config = replace(QUICK, lanes=1, max_attempts=2)
        await shop.loop(handler, config).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox") == 2
    assert await shop.count("inbox_parked", "message_id = 'bad' AND attempts = 2") == 1
