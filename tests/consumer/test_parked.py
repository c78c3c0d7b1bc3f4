"""Operators' acts on messages that were set aside: each with who and why."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from pillarbox.consumer.context import Context
from pillarbox.errors import InvalidRequest, ParkedUnknown
from pillarbox.ops import ActLimits, ParkedFilter, ParkedOps
from pillarbox.schema.tables import pillarbox_audit
from tests.consumer.rig import CONSUMER, QUICK, Shop, record
from tests.support.database import on

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


async def _audit(shop: Shop) -> list[tuple[str, str, str, int]]:
    columns = pillarbox_audit.c
    query = select(columns.actor, columns.action, columns.reason, columns.affected)
    async with shop.database.engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(query.order_by(columns.audit_id))]
