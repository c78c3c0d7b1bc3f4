"""Operators' acts on messages that were set aside: each with who and why."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from pillarbox.consumer.context import Context
from pillarbox.errors import InvalidRequest, ParkedUnknown
from pillarbox.event.incoming import Incoming
from pillarbox.ops import ActLimits, ParkedFilter, ParkedOps
from pillarbox.schema.tables import pillarbox_audit
from tests.consumer.rig import CONSUMER, QUICK, TOPIC, Effect, Shop, record
from tests.consumer.test_overtaken_returns import MovedClock
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

ONCE = replace(QUICK, max_attempts=1)


async def refuse(event: dict[str, Any], ctx: Context) -> None:
    """Fail over the first message of each key."""
    if event["n"] == 0:
        raise ValueError("the customer is unknown")
    await record(event, ctx)


@pytest.fixture
async def ops(shop: Shop) -> ParkedOps:
    """Three keys, each with a parked message and two behind it."""
    for key in ("a", "b", "c"):
        for n in range(3):
            shop.send(f"{key}{n}", key=key, n=n)
    await shop.loop(refuse, ONCE).drain()
    assert await shop.effects() == []
    return ParkedOps(shop.database.engine, actor="jane", limits=ActLimits(batch=2))


async def test_a_list_shows_what_is_parked_and_why(ops: ParkedOps) -> None:
    found = await ops.messages(ParkedFilter(consumer=CONSUMER, key="b"))

    assert [(m.message_id, m.reason, m.error_class, m.attempts) for m in found] == [
        ("b0", "handler-failed", "ValueError", 1)
    ]
    assert found[0].error_message == "the customer is unknown"
    assert len(await ops.messages(ParkedFilter(state="waiting"))) == 6


async def test_one_message_is_shown_with_its_content(ops: ParkedOps) -> None:
    (parked,) = await ops.messages(ParkedFilter(key="a"))

    shown = await ops.show(parked.parked_id)

    assert shown.body == b'{"n":0}'
    assert shown.headers["event_id"] == "a0"
    assert shown.behind == 2


async def test_a_redriven_message_comes_back_with_its_key_behind_it(
    shop: Shop, ops: ParkedOps
) -> None:
    (parked,) = await ops.messages(ParkedFilter(key="a"))

    done = await ops.redrive(parked.parked_id, reason="the customer is there now")
    await shop.loop().drain()

    assert done.affected == 1
    assert await shop.effects() == ["a0", "a1", "a2"]
    assert await _audit(shop) == [("jane", "redrive", "the customer is there now", 1)]


async def test_a_redriven_message_that_fails_again_is_parked_again(
    shop: Shop, ops: ParkedOps
) -> None:
    (parked,) = await ops.messages(ParkedFilter(key="a"))

    await ops.redrive(parked.parked_id, reason="try")
    await shop.loop(refuse, ONCE).drain()

    assert await shop.effects() == []
    assert [m.message_id for m in await ops.messages(ParkedFilter(key="a"))] == ["a0"]


async def test_a_discarded_message_lets_its_key_go_on(shop: Shop, ops: ParkedOps) -> None:
    (parked,) = await ops.messages(ParkedFilter(key="b"))

    await ops.discard(parked.parked_id, reason="a test order")
    await shop.loop().drain()

    assert await shop.effects() == ["b1", "b2"]
    assert await _audit(shop) == [("jane", "discard", "a test order", 1)]


async def test_all_that_match_are_redriven_in_batches_of_one_audit(
    shop: Shop, ops: ParkedOps
) -> None:
    done = await ops.redrive_all(ParkedFilter(error_class="ValueError"), reason="mended")
    await shop.loop().drain()

    assert done.affected == 3
    assert sorted(await shop.effects()) == [f"{key}{n}" for key in "abc" for n in range(3)]
    for key in "abc":
        assert await shop.effects(key) == [f"{key}{n}" for n in range(3)]
    assert await _audit(shop) == [
        ("jane", "redrive", "mended", 2),
        ("jane", "redrive", "mended", 1),
    ]


async def test_all_that_match_are_discarded(shop: Shop, ops: ParkedOps) -> None:
    done = await ops.discard_all(ParkedFilter(everything=True), reason="a test run")
    await shop.loop().drain()

    assert done.affected == 3
    assert sorted(await shop.effects()) == [f"{key}{n}" for key in "abc" for n in (1, 2)]


async def test_an_act_that_reaches_nothing_is_recorded_too(shop: Shop, ops: ParkedOps) -> None:
    done = await ops.redrive_all(ParkedFilter(key="none"), reason="by mistake")

    assert done.affected == 0
    assert await _audit(shop) == [("jane", "redrive", "by mistake", 0)]


async def test_what_cannot_be_meant_is_refused(ops: ParkedOps) -> None:
    with pytest.raises(InvalidRequest, match="names nothing"):
        await ops.discard_all(ParkedFilter(), reason="all")
    with pytest.raises(InvalidRequest, match="reason"):
        await ops.discard_all(ParkedFilter(everything=True), reason=" ")
    with pytest.raises(InvalidRequest, match="state"):
        ParkedFilter(state="dead")
    with pytest.raises(ParkedUnknown):
        await ops.redrive(uuid4(), reason="why not")


async def test_an_unreadable_message_can_be_redriven_once_somebody_reads_it(shop: Shop) -> None:
    ops = ParkedOps(shop.database.engine, actor="jane")
    shop.put("m1", b'{"n":1}', event_type="Unheard")
    await shop.loop().drain()
    (parked,) = await ops.messages(ParkedFilter(reason="unknown-type"))

    await ops.redrive(parked.parked_id, reason="there is a handler now")
    await shop.loop(event_type="Unheard").drain()

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox_parked") == 0


async def test_an_unreadable_message_that_has_its_broker_s_id_alone_can_be_redriven(
    shop: Shop,
) -> None:
    """The id was not kept: each redrive parked the message again, for want of an id."""
    ops = ParkedOps(shop.database.engine, actor="jane")
    told = {"event_type": "Unheard"}
    shop.bus.put(Incoming(TOPIC, "k", told, b'{"n":1}', "application/json", message_id="7-1"))
    await shop.loop().drain()
    (parked,) = await ops.messages(ParkedFilter(reason="unknown-type"))

    await ops.redrive(parked.parked_id, reason="there is a handler now")
    await shop.loop(event_type="Unheard").drain()

    assert await shop.effects("k") == ["7-1"]
    assert await shop.count("inbox", "message_id = '7-1'") == 1
    assert await shop.count("inbox_parked") == 0


@pytest.mark.parametrize("key", ["k" * 300, "k\0k"], ids=["too long", "with a zero"])
async def test_a_key_that_does_not_fit_is_no_other_key_when_it_is_redriven(
    shop: Shop, key: str
) -> None:
    """It was cut, and the message took effect under a key that nobody had sent."""
    ops = ParkedOps(shop.database.engine, actor="jane")
    shop.send("m1", key=key)
    await shop.loop().drain()
    (parked,) = await ops.messages(ParkedFilter(reason="invalid-key"))

    await ops.redrive(parked.parked_id, reason="let us see")
    await shop.loop().drain()

    assert await shop.effects() == []
    assert [found.reason for found in await ops.messages()] == ["invalid-key"]


async def test_a_message_that_comes_back_has_the_id_that_it_came_with(shop: Shop) -> None:
    """An id that only its hash fits for was hashed twice: what was delivered again took effect again."""

    failures = ["in this test"]

    async def fail_once(event: dict[str, Any], ctx: Context) -> None:
        if failures:
            raise ValueError(failures.pop())
        ctx.session.add(Effect(message_id="m1", key="k", n=event["n"]))

    told = {"event_type": "OrderCreated"}
    shop.bus.put(Incoming(TOPIC, "k", told, b'{"n":1}', "application/json", message_id="7" * 300))
    loop = shop.loop(fail_once, replace(QUICK, hold_limit=0.001))
    async with shop.running(loop):
        await until(lambda: shop.effects_are(1), "it has come back")
    shop.bus.redeliver()
    await shop.loop(fail_once).drain()

    assert await shop.effects() == ["m1"]
    assert await shop.count("inbox") == 1


async def test_a_broker_s_id_that_looks_like_a_place_comes_back_with_its_message(
    shop: Shop,
) -> None:
    """It was taken for the id of a message that has none: what came back was parked for good."""

    async def fail_once(event: dict[str, Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("in this test")
        await record(event, ctx)

    told = {"event_type": "OrderCreated"}
    shop.bus.put(Incoming(TOPIC, "k", told, b'{"n":1}', "application/json", message_id="at:7"))
    async with shop.running(shop.loop(fail_once, replace(QUICK, hold_limit=0.001))):
        await until(lambda: shop.effects_are(1), "it has come back")
    shop.bus.redeliver()
    await shop.loop(fail_once).drain()

    assert await shop.effects() == ["at:7"]
    assert await shop.count("inbox") == 1
    assert await shop.count("inbox_parked") == 0


@pytest.mark.parametrize("hold_limit", [5.0, 0.001], ids=["in hand", "in the table"])
async def test_a_parked_message_says_when_it_came_and_when_it_was_tried_last(
    shop: Shop, hold_limit: float
) -> None:
    """Its first time was that of its move to the table, after all the tries that it had in hand."""
    clock, tried = MovedClock(), list[datetime]()
    came = clock.now()

    async def fail(event: dict[str, Any], ctx: Context) -> None:
        clock.move(3_600)
        tried.append(clock.now())
        raise ValueError("in this test")

    shop.send("m1")
    for _ in range(2):
        config = replace(QUICK, max_attempts=2, hold_limit=hold_limit)
        await shop.loop(fail, config, clock=clock).drain()
        clock.move(60)

    (parked,) = await ParkedOps(shop.database.engine, actor="jane").messages()
    assert parked.attempts == len(tried) == 2
    assert (parked.first_at, parked.last_at) == (came, tried[1])


async def _audit(shop: Shop) -> list[tuple[str, str, str, int]]:
    columns = pillarbox_audit.c
    query = select(columns.actor, columns.action, columns.reason, columns.affected)
    async with shop.database.engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(query.order_by(columns.audit_id))]
