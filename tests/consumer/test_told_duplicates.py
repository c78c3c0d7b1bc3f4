"""A duplicate is passed over and told, once and without its content, wherever it is noticed."""

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pillarbox.clock import SYSTEM_CLOCK
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Park, Retry
from pillarbox.inbox.inbox import SqlAlchemyInbox
from tests.consumer.rig import CONSUMER, QUICK, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

ONE_LANE = replace(QUICK, lanes=1)
SECRET = 271828


@pytest.fixture(autouse=True)
def all_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pillarbox")


def duplicates(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the ids that were told as duplicates, and look at what was said with them."""
    said = [vars(line) for line in caplog.records if line.message == "duplicate_message"]
    assert all(line["levelname"] == "DEBUG" for line in said)
    assert all(line["consumer"] == CONSUMER for line in said)
    assert str(SECRET) not in str(said)
    return [line["message_id"] for line in said]


async def park_m6(event: dict[str, Any], ctx: Context) -> None:
    await record(event, ctx)
    if ctx.envelope.event_id == "m6":
        raise Park("in this test")


async def test_what_comes_again_is_told(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for n in (1, 2):
        shop.send(f"m{n}", n=SECRET)
    await shop.loop().drain()
    assert duplicates(caplog) == []

    shop.bus.redeliver()
    shop.send("m3", n=SECRET)
    await shop.loop().drain()

    assert await shop.effects() == ["m1", "m2", "m3"]
    assert duplicates(caplog) == ["m1", "m2"]


async def test_what_comes_again_beside_another_content_of_its_id_is_told(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("m1", n=SECRET)
    await shop.loop().drain()

    for n in (1, SECRET):
        shop.send("m1", n=n)
    await shop.loop().drain()

    assert duplicates(caplog) == ["m1"]
    assert await shop.count("inbox_parked", "reason = 'content-mismatch'") == 1


async def test_what_comes_again_behind_a_parked_message_is_told_and_so_is_that_one(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    for n in (4, 6):
        shop.send(f"m{n}", n=SECRET)
    await shop.loop(park_m6, ONE_LANE).drain()

    shop.bus.redeliver()
    await shop.loop(park_m6, ONE_LANE).drain()

    assert duplicates(caplog) == ["m4", "m6"]
    assert await shop.count("inbox_parked") == 1


async def test_what_is_known_when_its_key_moves_to_the_table_is_told(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait_with_m0(event: dict[str, Any], ctx: Context) -> None:
        if ctx.envelope.event_id == "m0":
            raise Retry(after=timedelta(hours=1))
        await record(event, ctx)

    shop.send("m1", n=SECRET)
    await shop.loop(wait_with_m0, ONE_LANE).drain()

    for message_id in ("m0", "m1", "m2", "m2"):
        shop.send(message_id, n=SECRET)
    await shop.loop(wait_with_m0, replace(ONE_LANE, batch_size=1)).drain()

    assert sorted(duplicates(caplog)) == ["m1", "m2"]
    assert await shop.count("inbox_parked", "message_id IN ('m0', 'm2')") == 2
    assert await shop.count("inbox_parked") == 2


async def test_what_took_effect_elsewhere_while_it_waited_is_told(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes back from the table, and finds itself in the inbox."""

    async def wait(event: dict[str, Any], ctx: Context) -> None:
        raise Retry(after=timedelta(seconds=6))

    shop.send("m1", n=SECRET)
    await shop.loop(wait, ONE_LANE).drain()
    async with shop.database.sessions.begin() as session:
        await SqlAlchemyInbox(session, consumer=CONSUMER).mark_processed("m1", "OrderCreated")

    await shop.loop(config=ONE_LANE, clock=Tomorrow()).drain()

    assert await shop.effects() == []
    assert duplicates(caplog) == ["m1"]
    assert await shop.count("inbox_parked") == 0


class Tomorrow:
    """A clock by which all that waits is due."""

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + timedelta(days=1)
