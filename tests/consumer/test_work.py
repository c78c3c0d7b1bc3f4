"""One transaction for a batch: each message takes effect once, and a bad one costs only itself."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction, async_sessionmaker

from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Drop, Park, Retry
from pillarbox.event.incoming import Incoming
from tests.consumer.rig import QUICK, TOPIC, Effect, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg", "sqlite+aiosqlite")


async def test_every_message_takes_effect_once_in_the_order_of_its_key(shop: Shop) -> None:
    for n in range(60):
        shop.send(f"m{n}", key=f"k{n % 7}", n=n)

    await shop.loop().drain()

    assert sorted(await shop.effects()) == sorted(f"m{n}" for n in range(60))
    for key in range(7):
        assert await shop.effects(f"k{key}") == [f"m{n}" for n in range(60) if n % 7 == key]
    assert await shop.count("inbox") == 60
    assert shop.seen.outcomes == {"new": 60}


async def test_what_comes_again_has_no_second_effect(shop: Shop) -> None:
    for n in range(10):
        shop.send(f"m{n}", key=f"k{n % 3}", n=n)
    await shop.loop().drain()

    shop.bus.redeliver()
    await shop.loop().drain()

    assert len(await shop.effects()) == 10
    assert shop.seen.outcomes == {"new": 10, "duplicate": 10}
    assert await shop.count("inbox_attempt") == 0


async def test_two_copies_in_one_batch_are_one_effect(shop: Shop) -> None:
    for _ in range(3):
        shop.send("m1", n=1)

    await shop.loop().drain()

    assert await shop.effects() == ["m1"]
    assert shop.seen.outcomes == {"new": 1, "duplicate": 2}


async def test_one_bad_message_costs_only_itself(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if ctx.envelope.event_id == "bad":
            raise ValueError("in this test")

    for n in range(5):
        shop.send(f"m{n}", key=f"k{n}", n=n)
    shop.send("bad", key="bad")

    await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=2)).drain()

    assert sorted(await shop.effects()) == [f"m{n}" for n in range(5)]
    assert await shop.count("inbox_parked", "message_id = 'bad' AND attempts = 2") == 1
    assert await shop.count("inbox") == 5
    assert await shop.count("inbox_attempt") == 0


class WithoutSavepoints(AsyncSession):
    def begin_nested(self) -> AsyncSessionTransaction:
        raise LookupError("in this test")


async def test_a_savepoint_that_is_refused_says_why(shop: Shop) -> None:
    """An UnboundLocalError of ours hid the reason."""
    shop.send("m1")
    sessions: async_sessionmaker[AsyncSession] = async_sessionmaker(
        shop.database.engine, class_=WithoutSavepoints
    )

    await shop.loop(config=replace(QUICK, max_attempts=1), sessions=sessions).drain()

    assert await shop.count("inbox_parked", "error_class = 'LookupError'") == 1
    assert await shop.count("inbox") == 0


async def test_a_statement_that_fails_is_its_own_message_s_fault(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if ctx.envelope.event_id == "bad":
            await ctx.session.execute(text("SELECT no_such_column FROM inbox"))

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=1)).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox_parked") == 1


async def test_a_row_that_only_the_flush_refuses_is_found(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        name = None if ctx.envelope.event_id == "bad" else ctx.envelope.event_id
        ctx.session.add(Effect(message_id=name, key="", n=event["n"]))

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=1)).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox_parked", "error_class = 'IntegrityError'") == 1


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
async def test_a_handler_that_ends_the_transaction_is_refused(shop: Shop, ending: str) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if ctx.envelope.event_id == "bad":
            await getattr(ctx.session, ending)()

    for message_id in ("m0", "bad", "m1"):
        shop.send(message_id, key=message_id)

    await shop.loop(handler, replace(QUICK, lanes=1, max_attempts=1)).drain()

    assert sorted(await shop.effects()) == ["m0", "m1"]
    assert await shop.count("inbox") == 2
    assert await shop.count("inbox_parked", "message_id = 'bad'") == 1


async def test_a_handler_that_asks_to_drop_leaves_a_claim_and_no_effect(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        raise Drop("not ours")

    shop.send("m1")
    await shop.loop(handler).drain()
    shop.bus.redeliver()
    await shop.loop().drain()

    assert await shop.effects() == []
    assert await shop.count("inbox") == 1
    assert shop.seen.outcomes == {"dropped": 1, "duplicate": 1}


async def test_a_handler_that_asks_to_wait_gets_its_message_again(shop: Shop) -> None:
    tries: list[int] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise Retry(after=timedelta(milliseconds=1))
        await record(event, ctx)

    shop.send("m1")
    await shop.loop(handler).drain()

    assert tries == [1, 2, 3]
    assert await shop.effects() == ["m1"]


async def test_a_handler_that_asks_for_a_person_is_not_called_again(shop: Shop) -> None:
    tries: list[int] = []

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise Park("the customer is unknown")

    shop.send("m1")
    await shop.loop(handler).drain()

    assert tries == [1]
    reason = await shop.database.scalar("SELECT reason || ': ' || error_message FROM inbox_parked")
    assert reason == "handler-asked: the customer is unknown"


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the ids for which the alarm was raised that they have another content."""
    said = [line for line in caplog.records if line.message == "content_mismatch"]
    assert all(line.levelname == "WARNING" for line in said)
    return [vars(line)["message_id"] for line in said]


async def test_the_same_id_with_another_content_is_parked_and_not_applied(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("m1", n=1)
    await shop.loop().drain()

    shop.send("m1", n=2)
    shop.send("m2", n=3)
    await shop.loop().drain()

    assert await shop.effects() == ["m1", "m2"]
    assert await shop.count("inbox_parked", "reason = 'content-mismatch' AND holds_key = 0") == 1
    assert alarms(caplog) == ["m1"]


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("on_parked", ["hold", "pass"])
async def test_another_content_under_the_id_of_a_parked_message_is_parked_too(
    shop: Shop,
    on_parked: Literal["hold", "pass"],
    key: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if event["n"] == 1:
            raise Park("in this test")

    config = replace(QUICK, on_parked=on_parked)
    shop.send("m1", key, n=1)
    await shop.loop(handler, config).drain()

    for n in (2, 1, 2, 3):
        shop.send("m1", key, n=n)
    await shop.loop(handler, config).drain()

    assert await shop.effects() == []
    parked = "reason = 'content-mismatch' AND state = 'parked' AND holds_key = 0"
    assert await shop.count("inbox_parked", parked) == 2
    assert await shop.count("inbox_parked") == 3
    assert shop.seen.outcomes == {"failed": 1, "parked": 3, "duplicate": 2}
    assert alarms(caplog) == ["m1", "m1"]


async def test_a_redelivery_finds_its_own_content_among_those_under_its_id(shop: Shop) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise Park("in this test")

    for n in (1, 2):
        shop.send("m1", n=n)
        await shop.loop(handler).drain()

    shop.bus.redeliver()
    await shop.loop(handler).drain()

    assert await shop.count("inbox_parked") == 2
    assert shop.seen.outcomes == {"failed": 1, "parked": 2, "duplicate": 2}


async def test_another_content_in_hand_behind_a_message_that_waits_is_not_lost(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes to the table with the others, where its id is taken by what came before it."""

    async def handler(event: dict[str, Any], ctx: Context) -> None:
        await record(event, ctx)
        if ctx.envelope.event_id == "m0":
            raise Retry(after=timedelta(hours=1))

    for message_id, n in (("m0", 0), ("m1", 1), ("m1", 2), ("m1", 1)):
        shop.send(message_id, n=n)
    await shop.loop(handler, replace(QUICK, lanes=1)).drain()

    assert await shop.effects() == []
    assert await shop.count("inbox_parked", "message_id = 'm1' AND state = 'waiting'") == 1
    assert await shop.count("inbox_parked", "reason = 'content-mismatch' AND holds_key = 0") == 1
    assert await shop.count("inbox_parked") == 3
    assert alarms(caplog) == ["m1"]


@pytest.mark.parametrize(("amount", "parked"), [(7, 1), (8, 2)])
async def test_of_a_whole_event_only_the_data_are_compared(
    shop: Shop, amount: int, parked: int
) -> None:
    async def handler(event: dict[str, Any], ctx: Context) -> None:
        raise Park("in this test")

    for told, n in (("2026-01-01T00:00:00Z", 7), ("2026-01-01T00:00:01Z", amount)):
        event = {
            "specversion": "1.0", "id": "m1", "source": "shop", "type": "OrderCreated",
            "time": told, "data": {"n": n},
        }  # fmt: skip
        body = json.dumps(event).encode()
        shop.bus.put(Incoming(TOPIC, "k", {}, body, "application/cloudevents+json"))
        await shop.loop(handler).drain()

    assert await shop.count("inbox_parked") == parked
    assert await shop.count("inbox_parked", "reason = 'content-mismatch'") == parked - 1


async def test_what_cannot_be_read_is_parked_with_its_code(shop: Shop) -> None:
    shop.put("m1", b"{")
    shop.put("m2", b'{"n":1}', event_type="Unheard")
    shop.send("m3")

    await shop.loop().drain()

    assert await shop.effects() == ["m3"]
    assert shop.seen.outcomes == {"parked": 2, "new": 1}
    assert await shop.count("inbox_parked", "reason = 'undecodable'") == 1
    assert await shop.count("inbox_parked", "reason = 'unknown-type'") == 1
