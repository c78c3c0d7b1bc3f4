"""A handler that gives up its own statement closes the connection: that is its failure, nobody else's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Drop, Retry
from pillarbox.database import make_engine
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on, on_postgres
from tests.support.giving_up import give_up
from tests.support.waiting import until

on_all = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")


@pytest.fixture
async def sessions(shop: Shop) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    """On SQLite an engine that gives the write lock up when a statement is cancelled, as a box has."""
    engine = make_engine(shop.database.engine.url)
    yield async_sessionmaker(engine)
    await engine.dispose()


@on_all
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_a_handler_that_gives_up_its_statement_is_parked_and_others_go_on(
    shop: Shop, sessions: async_sessionmaker[AsyncSession], swallowed: bool
) -> None:
    """It passed for a database that had gone away: the message came again for ever, and its lane stood."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "bad":
            with suppress(*([TimeoutError] if swallowed else [])):
                await give_up(ctx.session)
        await record(event, ctx)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    async with asyncio.timeout(60):
        config = replace(QUICK, lanes=1, max_attempts=2)
        await shop.loop(handler, config, sessions=sessions).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox") == 2
    assert await shop.count("inbox_parked", "message_id = 'bad' AND attempts = 2") == 1


@on_all
async def test_a_message_that_came_back_and_gives_up_its_statement_is_parked(
    shop: Shop, sessions: async_sessionmaker[AsyncSession]
) -> None:
    tries: dict[str, int] = {}

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        message_id = ctx.envelope.event_id
        tries[message_id] = tries.get(message_id, 0) + 1
        if tries[message_id] == 1:
            raise Retry(after=timedelta(milliseconds=10))
        if message_id == "bad":
            await give_up(ctx.session)
        await record(event, ctx)

    for message_id in ("bad", "m0"):
        shop.send(message_id, key=message_id)

    async def is_parked() -> bool:
        return await shop.count("inbox_parked", "state = 'parked'") == 1

    config = replace(QUICK, hold_limit=0.001, max_attempts=2)

    async with shop.running(shop.loop(handler, config, sessions=sessions)):
        await until(lambda: shop.effects_are(1), "the other has come back")
        await until(is_parked, "the bad one is parked")

    assert await shop.effects() == ["m0"]


@on("postgres18+asyncpg")
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_a_handler_whose_statement_the_driver_gives_up_is_parked_and_others_go_on(
    shop: Shop, swallowed: bool
) -> None:
    """With a limit of the driver the connection goes as well; no attempt was counted, for ever."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "bad":
            with suppress(*([TimeoutError] if swallowed else [])):
                await ctx.session.execute(text("SELECT pg_sleep(60)"))
        await record(event, ctx)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    limit = {"command_timeout": 2}
    async with asyncio.timeout(60), shop.database.other_engine(connect_args=limit) as engine:
        config = replace(QUICK, lanes=1, max_attempts=1)
        await shop.loop(handler, config, sessions=async_sessionmaker(engine)).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox_parked", "message_id = 'bad' AND attempts = 1") == 1


@on_all
async def test_a_handler_that_closes_its_connection_is_parked_and_others_go_on(
    shop: Shop, sessions: async_sessionmaker[AsyncSession]
) -> None:
    """It too passed for a lost database: nobody says why a connection is closed that is closed by hand."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "bad":
            await (await ctx.session.connection()).invalidate()
        await record(event, ctx)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    async with asyncio.timeout(60):
        config = replace(QUICK, lanes=1, max_attempts=2)
        await shop.loop(handler, config, sessions=sessions).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox_parked", "message_id = 'bad' AND attempts = 2") == 1


@on_postgres
async def test_a_connection_that_is_lost_under_a_handler_counts_as_no_attempt(shop: Shop) -> None:
    lost: list[str] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if not lost:
            lost.append(ctx.envelope.event_id)
            with suppress(DBAPIError):
                await ctx.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            raise TimeoutError("the statement before failed")
        await record(event, ctx)

    shop.send("m0", key="m0")

    async with shop.running(shop.loop(handler, replace(QUICK, max_attempts=1))):
        await until(lambda: shop.effects_are(1), "it has come again")

    assert await shop.count("inbox_parked") == 0


async def _too_slow(ctx: Context) -> None:
    try:
        await give_up(ctx.session)
    except TimeoutError:
        raise Drop("too slow") from None


async def _rolled_back(ctx: Context) -> None:
    await ctx.session.rollback()
    raise Drop("too slow")


async def _ended_savepoint(ctx: Context) -> None:
    savepoint = ctx.session.get_nested_transaction()
    assert savepoint is not None
    await savepoint.rollback()
    raise Drop("too slow")


@on_all
@pytest.mark.parametrize("ends", [_too_slow, _rolled_back, _ended_savepoint])
async def test_a_message_that_is_dropped_when_its_claim_is_gone_is_not_acknowledged(
    shop: Shop,
    sessions: async_sessionmaker[AsyncSession],
    ends: Callable[[Context], Awaitable[None]],
) -> None:
    """It was, and nothing had been committed: a second copy of it took effect."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if event["n"]:
            await ends(ctx)
        await record(event, ctx)

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, n=int(message_id == "bad"))

    async with asyncio.timeout(60):
        config = replace(QUICK, lanes=1, max_attempts=2)
        await shop.loop(handler, config, sessions=sessions).drain()
        shop.bus.redeliver()
        await shop.loop(sessions=sessions).drain()

    assert await shop.effects() == ["m0"]
    assert "dropped" not in shop.seen.outcomes
    parked = "message_id = 'bad' AND error_class = 'Drop' AND error_message = 'too slow'"
    assert await shop.count("inbox_parked", f"{parked} AND state = 'parked'") == 1


@on_all
async def test_a_message_that_came_back_and_is_dropped_when_its_claim_is_gone_is_parked(
    shop: Shop, sessions: async_sessionmaker[AsyncSession]
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event
        if ctx.attempt == 1:
            raise Retry(after=timedelta(milliseconds=10))
        await _rolled_back(ctx)

    shop.send("bad")

    async def is_parked() -> bool:
        return await shop.count("inbox_parked", "state = 'parked'") == 1

    config = replace(QUICK, hold_limit=0.001, max_attempts=2)
    async with shop.running(shop.loop(handler, config, sessions=sessions)):
        await until(is_parked, "it is parked")

    assert "dropped" not in shop.seen.came_back


@on_all
async def test_a_message_that_is_dropped_while_its_claim_stands_takes_no_effect_later(
    shop: Shop, sessions: async_sessionmaker[AsyncSession]
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        del event, ctx
        raise Drop("not wanted")

    shop.send("m0")

    await shop.loop(handler, sessions=sessions).drain()
    shop.bus.redeliver()
    await shop.loop(sessions=sessions).drain()

    assert await shop.effects() == []
    assert shop.seen.outcomes == {"dropped": 1, "duplicate": 1}
