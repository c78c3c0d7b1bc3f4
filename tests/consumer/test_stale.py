"""How old an event is, what took effect decides: not what stands before it in its batch."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.consumer.context import Context
from pillarbox.consumer.signals import Park
from tests.consumer.rig import QUICK, Shop, record
from tests.support.database import on

pytestmark = on("postgres18+psycopg", "sqlite+aiosqlite")

ONE_LANE = replace(QUICK, lanes=1, on_parked="pass")
POLICIES: list[Literal["drop", "park"]] = ["drop", "park"]


def send(shop: Shop, message_id: str, version: int, number: int = 1, key: str = "k") -> None:
    """Send an event of one order, whatever its key."""
    shop.send(
        message_id,
        key,
        aggregate_type="order",
        aggregate_id="o",
        aggregate_version=str(version),
        event_number=str(number),
    )


async def refuse_the_new(event: dict[str, Any], ctx: Context) -> None:
    if ctx.envelope.event_id == "new":
        raise Park("in this test")
    await record(event, ctx)


@pytest.mark.parametrize("policy", POLICIES)
async def test_an_event_is_not_stale_by_another_of_its_batch_that_fails(
    shop: Shop, policy: Literal["drop", "park"]
) -> None:
    """It was dropped before the newer one was tried, and that one never took effect."""
    send(shop, "new", 5)
    send(shop, "old", 4)
    await shop.loop(refuse_the_new, replace(ONE_LANE, on_stale=policy)).drain()

    assert await shop.effects() == ["old"]
    assert await shop.count("inbox_parked", "message_id = 'old'") == 0


@pytest.mark.parametrize(("policy", "outcome"), [("drop", "dropped"), ("park", "parked")])
async def test_an_event_is_stale_by_another_of_its_batch_that_takes_effect(
    shop: Shop, policy: Literal["drop", "park"], outcome: Any
) -> None:
    for message_id, version in (("new", 5), ("old", 4), ("newest", 6)):
        send(shop, message_id, version)
    await shop.loop(config=replace(ONE_LANE, on_stale=policy)).drain()

    assert await shop.effects() == ["new", "newest"]
    assert shop.seen.outcomes == {"new": 2, outcome: 1}


@pytest.mark.parametrize(("policy", "outcome"), [("drop", "dropped"), ("park", "parked")])
@pytest.mark.parametrize("number", [0, 1])
async def test_an_event_of_a_version_is_stale_by_one_of_this_number_or_a_higher_one(
    shop: Shop, policy: Literal["drop", "park"], outcome: Any, number: int
) -> None:
    config = replace(ONE_LANE, on_stale=policy)
    send(shop, "applied", 3, 1)
    await shop.loop(config=config).drain()

    send(shop, "not above it", 3, number)
    send(shop, "above it", 3, 2)
    await shop.loop(config=config).drain()

    assert await shop.effects() == ["applied", "above it"]
    assert shop.seen.outcomes == {"new": 2, outcome: 1}


async def test_nothing_of_a_key_passes_an_event_whose_age_is_open(shop: Shop) -> None:
    """Events of one order under two keys: the later one of the second key would make it stale."""
    shop.bus = MemoryMessageBus(partitions=1)
    send(shop, "new", 5, key="a")
    send(shop, "old", 4, key="b")
    send(shop, "newest", 6, key="b")
    await shop.loop(refuse_the_new, replace(ONE_LANE, on_stale="drop")).drain()

    assert await shop.effects() == ["old", "newest"]
