"""The loop against the outside: a database that goes away, a full window, stale events."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.subscription import Reception
from pillarbox.consumer.context import Context
from pillarbox.consumer.lane import lane_of
from pillarbox.consumer.metrics import ConsumerMetrics
from pillarbox.database import async_url, sync_url
from pillarbox.errors import InvalidConfig
from pillarbox.measures import Distribution
from pillarbox.schema import apply
from pillarbox.servers import Postgres
from pillarbox.tenancy import DEFAULT_TENANT
from tests.consumer.rig import QUICK, Counting, Shop, record
from tests.support.database import Database, on
from tests.support.waiting import until

QUICK_LIMIT = timedelta(seconds=3)
BOTH = on("postgres18+psycopg", "sqlite+aiosqlite")


@pytest.fixture
async def restarting(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Shop, Postgres]]:
    """A shop on a server of its own, which can be killed."""
    with Postgres(18) as server:
        url = server.create_database("restarting")
        engine = create_engine(sync_url(url), poolclass=NullPool)
        with engine.begin() as connection:
            apply(connection)
        chosen = async_url(url.replace("postgresql:", f"postgresql+{request.param}:"))
        made = create_async_engine(chosen)
        shop = Shop(Database("restarting", chosen, made, async_sessionmaker(made)))
        await shop.clear()
        yield shop, server
        await made.dispose()


@pytest.mark.servers("postgres18")
@pytest.mark.parametrize("restarting", ["psycopg", "asyncpg"], indirect=True)
async def test_a_database_that_dies_costs_no_attempt_and_no_effect(
    restarting: tuple[Shop, Postgres],
) -> None:
    shop, server = restarting
    begun = asyncio.Event()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.session.flush()
        if event["n"] == 20:
            begun.set()

    for n in range(200):
        shop.send(f"m{n}", key=f"k{n % 5}", n=n)
    async with shop.running(shop.loop(handler, replace(QUICK, batch_size=3, max_attempts=1))):
        await begun.wait()
        await asyncio.to_thread(server.kill)
        await until(lambda: _is_away(shop), "the consumer has noticed", limit=20)
        await asyncio.to_thread(server.restart)
        await until(lambda: shop.effects_are(200), "all are done", limit=60)

    for key in range(5):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(200) if n % 5 == key]
    assert await shop.count("inbox_parked") == 0
    assert "failed" not in shop.seen.outcomes


@BOTH
async def test_receiving_stops_when_the_window_is_full(shop: Shop) -> None:
    opened, received = asyncio.Event(), []

    class Watching(Counting):
        def received(self, messages: int) -> None:
            received.append(messages)

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await opened.wait()
        await record(event, ctx)

    for n in range(50):
        shop.send(f"m{n}", key=f"k{n}", n=n)
    config = replace(QUICK, window=10, batch_size=5)
    async with shop.running(shop.loop(handler, config, observer=Watching())):
        await until(lambda: _is(sum(received) == 10), "the window is full")
        opened.set()
        await until(lambda: shop.effects_are(50), "all are done")

    assert sum(received[:1]) <= 10
    assert max(received) <= 10


@on("postgres18+psycopg", "postgres18+asyncpg")
async def test_a_key_of_another_lane_takes_effect_while_a_handler_waits(shop: Shop) -> None:
    entered, opened = asyncio.Event(), asyncio.Event()
    lanes = {lane_of((DEFAULT_TENANT, f"k{n}", ""), QUICK.lanes): f"k{n}" for n in range(100)}
    slow, other, *_ = lanes.values()

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.key == slow:
            entered.set()
            await opened.wait()
        await record(event, ctx)

    shop.send("waits", slow)
    async with shop.running(shop.loop(handler)):
        await entered.wait()
        shop.send("of another lane", other)
        await until(lambda: shop.effects_are(1), "the other lane goes on", limit=10)
        assert await shop.effects() == ["of another lane"]
        opened.set()
        await until(lambda: shop.effects_are(2), "both are done")

    assert await shop.effects() == ["of another lane", "waits"]


@BOTH
@pytest.mark.parametrize(
    ("policy", "applied", "parked"), [("apply", 4, 0), ("drop", 3, 0), ("park", 3, 1)]
)
async def test_an_event_older_than_what_was_applied_is_treated_by_policy(
    shop: Shop, policy: Any, applied: int, parked: int
) -> None:
    config = replace(QUICK, on_stale=policy)
    for message_id, version, number in (("a", 1, 1), ("b", 1, 2), ("c", 3, 1)):
        shop.send(message_id, aggregate_version=str(version), event_number=str(number))
    await shop.loop(config=config).drain()

    shop.send("late", aggregate_version="2", event_number="9")
    await shop.loop(config=config).drain()

    assert len(await shop.effects()) == applied
    assert await shop.count("inbox_parked", "reason = 'stale' AND holds_key = 0") == parked
    assert await shop.count("inbox_applied") == (0 if policy == "apply" else 1)


@BOTH
async def test_aggregates_of_one_key_do_not_make_one_another_stale(shop: Shop) -> None:
    """The stand was kept for a key: good events of its second aggregate were dropped."""
    config = replace(QUICK, on_stale="drop")
    sent = [("order", "1", 7), ("bill", "1", 1), ("order", "2", 1), ("order", "1", 6)]
    for number, (kind, aggregate_id, version) in enumerate(sent):
        shop.send(
            f"m{number}",
            key="customer",
            aggregate_type=kind,
            aggregate_id=aggregate_id,
            aggregate_version=str(version),
        )
    shop.send(
        "of another service",
        key="customer",
        ce_source="warehouse",
        aggregate_type="order",
        aggregate_id="1",
        aggregate_version="1",
    )
    await shop.loop(config=config).drain()

    assert await shop.effects() == ["m0", "m1", "m2", "of another service"]
    assert shop.seen.outcomes["dropped"] == 1


@BOTH
async def test_a_hold_longer_than_the_broker_s_patience_is_refused(shop: Shop) -> None:
    reception = Reception(orders_keys=True, hand_back_limit=QUICK_LIMIT, longest_redelivery=None)
    shop.bus = MemoryMessageBus(reception=reception)

    with pytest.raises(InvalidConfig, match=r"is 5 s, and the broker delivers again after 3 s"):
        await shop.loop().run_forever()


@BOTH
@pytest.mark.parametrize(
    ("longest", "level", "words"),
    [(timedelta(days=7), "WARNING", "again for 7 days"), (None, "INFO", "again at any time")],
)
async def test_an_inbox_that_forgets_before_the_broker_does_says_so_with_the_numbers_there_are(
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
    longest: timedelta | None,
    level: str,
    words: str,
) -> None:
    """A broker that redelivers for ever has no number, and no retention would do: no warning."""
    caplog.set_level(logging.INFO, logger="pillarbox.consumer")
    reception = Reception(orders_keys=True, hand_back_limit=None, longest_redelivery=longest)
    shop.bus = MemoryMessageBus(reception=reception)

    await shop.loop(config=replace(QUICK, retention_days=3)).drain()

    [said] = [line for line in caplog.records if line.message == "inbox_forgets_early"]
    told: str = vars(said)["warning"]
    assert said.levelname == level
    assert "for 3 days" in told
    assert words in told


@BOTH
async def test_an_inbox_that_remembers_for_longer_than_the_broker_says_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillarbox.consumer")
    week = Reception(orders_keys=True, hand_back_limit=None, longest_redelivery=timedelta(days=7))
    shop.bus = MemoryMessageBus(reception=week)

    await shop.loop(config=replace(QUICK, retention_days=8)).drain()

    assert "inbox_forgets_early" not in [line.message for line in caplog.records]


@BOTH
async def test_the_metrics_tell_what_became_of_messages(shop: Shop) -> None:
    metrics = ConsumerMetrics("payments")

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        if event["n"] == 3:
            raise ValueError("in this test")
        await record(event, ctx)

    for n in range(4):
        shop.send(f"m{n}", key=f"k{n}", n=n)
    shop.send("m0", key="k0", n=0)
    await shop.loop(handler, replace(QUICK, max_attempts=2), observer=metrics).drain()

    values = {
        (sample.name, dict(sample.labels).get("outcome")): sample.value
        for sample in metrics.snapshot()
    }
    deliveries = "pillarbox_inbox_deliveries_total"
    assert values[deliveries, "new"] == 3
    assert values[deliveries, "duplicate"] == 1
    assert values[deliveries, "failed"] == 2
    assert values[deliveries, "parked"] == 1
    assert values["pillarbox_consumer_lag_messages", None] == 5  # asked when all still waited
    durations = values["pillarbox_handler_duration_seconds", None]
    assert isinstance(durations, Distribution)
    assert durations.count >= 5


@BOTH
async def test_the_outbox_of_a_handler_commits_with_its_effect(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        await ctx.outbox.add(topic="shop.payment", payload={"n": event["n"]}, key="k")
        if event["n"] == 1:
            raise ValueError("in this test")

    await _empty_outbox(shop)
    for n in range(3):
        shop.send(f"m{n}", key=f"k{n}", n=n)
    await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=1)).drain()

    assert sorted(await shop.effects()) == ["m0", "m2"]
    assert [record.payload for record in await shop.database.events()] == [{"n": 0}, {"n": 2}]
    await _empty_outbox(shop)


async def _empty_outbox(shop: Shop) -> None:
    async with shop.database.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM outbox")


async def _is_away(shop: Shop) -> bool:
    return shop.seen.away > 0


async def _is(value: bool) -> bool:
    return value
