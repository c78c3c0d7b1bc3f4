"""Waiting messages come back many at a time: a hot key leaves the table, a slow one keeps nobody."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text

from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from pillarbox.inbox.inbox import SqlAlchemyInbox
from pillarbox.inbox.message import InboxMessage
from tests.consumer.rig import CONSUMER, QUICK, Shop, record
from tests.support.database import on, on_postgres
from tests.support.waiting import until

BOTH = on("postgres18+psycopg", "sqlite+aiosqlite")


async def ask_to_wait(event: dict[str, Any]) -> None:
    raise Retry(after=timedelta(hours=1))


async def into_table(shop: Shop, **keys: int) -> None:
    """Have so many messages of each key wait in the table, the first of each due."""
    for key, count in keys.items():
        for n in range(count):
            shop.send(f"{key}{n}", key=key, n=n)

    async def there() -> bool:
        return await shop.count("inbox_parked") == sum(keys.values())

    async with shop.running(shop.loop(ask_to_wait)):
        await until(there, "they are in the table")
    async with shop.database.engine.begin() as connection:
        await connection.execute(_DUE)


_DUE = text("UPDATE inbox_parked SET due_at = first_at, attempts = 0 WHERE due_at IS NOT NULL")


async def _none(shop: Shop, table: str = "inbox_parked") -> bool:
    return await shop.count(table) == 0


@on_postgres
async def test_a_hot_key_with_a_steady_inflow_leaves_the_table(shop: Shop) -> None:
    """One at a time came back, and more came behind it: a hot key never left the table."""
    await into_table(shop, m=200)
    transactions: set[object] = set()
    sent = [f"m{n}" for n in range(200)]
    left = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        number = await ctx.session.scalar(select(func.txid_current()))
        if number not in transactions and not left.is_set():
            transactions.add(number)
            for _ in range(3):  # more than one for each transaction in which some come back
                sent.append(f"m{len(sent)}")
                shop.send(sent[-1], key="m")

    async with shop.running(shop.loop(handler)):
        await until(lambda: _none(shop), "the key has left the table")
        left.set()
        await until(lambda: shop.effects_are(len(sent)), "all have taken effect")

    assert await shop.effects() == sent
    assert await shop.count("inbox_attempt") == 0


@BOTH
async def test_what_comes_back_together_commits_together(shop: Shop) -> None:
    await into_table(shop, m=50)
    called: list[str] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        called.append(ctx.envelope.event_id)
        if len(called) == 50:
            assert await shop_count_is_unchanged(shop)
        await record(event, ctx)

    async with shop.running(shop.loop(handler)):
        await until(lambda: shop.effects_are(50), "all have come back")

    assert await shop.effects() == called
    assert shop.seen.came_back == {"new": 50}
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def shop_count_is_unchanged(shop: Shop) -> bool:
    """Tell whether nobody else can see yet that anything has come back."""
    return not shop.database.is_postgres or await shop.count("inbox_parked") == 50


@on_postgres
async def test_a_slow_handler_keeps_no_other_key_from_coming_back(shop: Shop) -> None:
    await into_table(shop, slow=2, a=2, b=2, c=2)
    opened = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.key == "slow":
            await opened.wait()
        await record(event, ctx)

    async with shop.running(shop.loop(handler)):
        await until(lambda: shop.effects_are(6), "the others have come back")
        opened.set()
        await until(lambda: shop.effects_are(8), "all have come back")

    for key in ("slow", "a", "b", "c"):
        assert await shop.effects(key) == [f"{key}0", f"{key}1"]


@BOTH
async def test_a_message_that_fails_among_others_costs_only_itself_and_holds_what_is_behind(
    shop: Shop,
) -> None:
    await into_table(shop, m=6)
    healed = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "m3" and not healed.is_set():
            raise ValueError("not yet")
        await record(event, ctx)

    async def only_three_left() -> bool:
        return await shop.count("inbox_parked", "attempts > 2") == 1

    async with shop.running(shop.loop(handler, replace(QUICK, max_attempts=1_000))):
        await until(only_three_left, "it has failed a few times")
        before = await shop.effects()
        waiting = await shop.count("inbox_parked")
        healed.set()
        await until(lambda: shop.effects_are(6), "all have come back")

    assert before == ["m0", "m1", "m2"]
    assert waiting == 3
    assert await shop.effects() == [f"m{n}" for n in range(6)]
    assert await shop.count("inbox_attempt") == 0


@on_postgres
async def test_a_commit_that_fails_leaves_the_first_to_go_alone(shop: Shop) -> None:
    await into_table(shop, m=3)

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.session.flush()
        if ctx.envelope.event_id == "m1":
            await ctx.session.execute(text("INSERT INTO deferred VALUES (1), (1)"))

    async with shop.database.engine.begin() as connection:
        await connection.execute(text("DROP TABLE IF EXISTS deferred"))
        await connection.execute(
            text("CREATE TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        )

    async def parked() -> bool:
        return await shop.count("inbox_parked", "state = 'parked' AND message_id = 'm1'") == 1

    async with shop.running(shop.loop(handler, replace(QUICK, max_attempts=3))):
        await until(parked, "it is parked")

    assert await shop.effects() == ["m0"]
    assert await shop.count("inbox_parked") == 2
    assert await shop.count("inbox_attempt") == 0


@BOTH
async def test_other_content_under_a_known_id_is_parked_and_the_rest_comes_back(
    shop: Shop,
) -> None:
    await into_table(shop, m=3)
    async with shop.database.sessions() as session:
        known = SqlAlchemyInbox(session, "default", consumer=CONSUMER)
        other = InboxMessage(message_id="m1", event_type="OrderCreated", payload=b"other")
        assert await known.claim_many([other])
        await session.commit()

    async with shop.running(shop.loop()):
        await until(lambda: shop.effects_are(2), "the others have come back")

    assert await shop.effects() == ["m0", "m2"]
    assert await shop.count("inbox_parked", "reason = 'content-mismatch'") == 1
    assert await shop.count("inbox_attempt") == 0


@BOTH
@pytest.mark.parametrize("started", [1, 2])
async def test_a_message_that_a_process_died_over_does_not_come_back_among_others(
    shop: Shop, started: int
) -> None:
    """Alone it is found out; twice alone in hand, it is parked."""
    await into_table(shop, m=4)
    died = text(
        "INSERT INTO inbox_attempt (tenant_id, consumer, message_id, started, alone)"
        " VALUES ('default', :consumer, 'm2', :started, :alone)"
    )
    values = {"consumer": CONSUMER, "started": started, "alone": int(started > 1)}
    async with shop.database.engine.begin() as connection:
        await connection.execute(died, values)
    config: ConsumerConfig = replace(QUICK, max_crashes=2, on_parked="pass")
    expected = ["m0", "m1", "m2", "m3"] if started == 1 else ["m0", "m1", "m3"]

    async with shop.running(shop.loop(config=config)):
        await until(lambda: shop.effects_are(len(expected)), "they have come back")

    assert await shop.effects() == expected
    assert await shop.count("inbox_parked", "reason = 'crashed'") == started - 1
    assert await shop.count("inbox_attempt") == 0
