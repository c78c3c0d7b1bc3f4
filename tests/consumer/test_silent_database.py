"""A connection that has gone silent, neither closed nor answering: the consumer gives it up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Retry
from pillarbox.consumer.transactions import CLOCK
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on
from tests.support.faultproxy import CLIENT, SERVER, Drop, FaultProxy, Freeze, Rule, Seen
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")

IMPATIENT = replace(QUICK, lanes=1, batch_size=3, max_attempts=1, database_timeout=1.0)
MESSAGES = 9
# The server ends the session of a client that it does not hear of any more.
FORSAKEN = {
    "psycopg": {"options": "-c idle_in_transaction_session_timeout=1s"},
    "asyncpg": {"server_settings": {"idle_in_transaction_session_timeout": "1s"}},
}


@asynccontextmanager
async def sessions_through(
    shop: Shop, proxy: FaultProxy
) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    url = shop.database.url.set(port=proxy.port)
    given = FORSAKEN[url.get_driver_name()]
    async with shop.database.other_engine(url, connect_args=given) as engine:
        yield async_sessionmaker(engine, expire_on_commit=False)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(SERVER, Seen(b"INSERT INTO inbox"), Freeze()),
        Rule(CLIENT, Seen(b"INSERT"), Freeze()),
        Rule(SERVER, Seen(b"COMMIT"), Freeze()),
        Rule(SERVER, Seen(b"COMMIT"), Drop(CLIENT), after=True),
    ],
    ids=["the claim is lost", "an answer is lost", "the commit is lost", "the commit's answer is"],
)
async def test_a_connection_gone_silent_costs_no_attempt_and_no_effect(
    shop: Shop, rule: Rule
) -> None:
    assert shop.database.url.host is not None
    assert shop.database.url.port is not None
    for n in range(MESSAGES):
        shop.send(f"m{n}", key=f"k{n % 2}", n=n)

    async with FaultProxy(shop.database.url.host, shop.database.url.port) as proxy:
        proxy.plan(rule)
        async with sessions_through(shop, proxy) as sessions:
            loop = shop.loop(config=IMPATIENT, sessions=sessions)
            async with shop.running(loop):
                await proxy.fired()
                await until(lambda: shop.effects_are(MESSAGES), "all are done", limit=60)

    for key in range(2):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(MESSAGES) if n % 2 == key]
    assert shop.seen.away >= 1
    assert "failed" not in shop.seen.outcomes
    assert await shop.count("inbox_parked") == 0
    assert await shop.count("inbox_attempt") == 0


async def test_the_time_of_a_handler_is_its_own(shop: Shop) -> None:
    """The clock of a transaction stands still while a handler works, and goes on afterwards."""
    clocks: list[asyncio.Timeout] = []
    due: list[float | None] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        clock, _ = ctx.session.info[CLOCK]
        clocks.append(clock)
        due.append(clock.when())
        await record(event, ctx)

    shop.send("m1")
    await shop.loop(handler).drain()

    assert await shop.effects() == ["m1"]
    assert due == [None]
    assert clocks[0].when() is not None


@dataclass
class Heavy:
    """A model that takes longer to make than a transaction may."""

    n: int

    def __post_init__(self) -> None:
        done = monotonic() + 0.3
        while monotonic() < done:
            pass


async def test_the_time_of_a_model_that_is_made_for_a_message_that_comes_back_is_its_own(
    shop: Shop,
) -> None:
    """Made under the clock, it was cancelled before its handler was called, again and again."""
    tries: list[int] = []

    async def handler(event: Heavy, ctx: Context) -> None:
        tries.append(event.n)
        if len(tries) == 1:
            raise Retry(after=timedelta(milliseconds=50))
        await record({"n": event.n}, ctx)

    shop.send("m1")
    config = replace(QUICK, lanes=1, hold_limit=0.001, database_timeout=0.2)
    async with shop.running(shop.loop(handler, config)):
        await until(lambda: shop.effects_are(1), "it has come back", limit=10)

    assert len(tries) == 2
