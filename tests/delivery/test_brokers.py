"""Refusals of real brokers, through the projector: who is held, who is counted."""

from collections.abc import AsyncIterator, Sequence

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.testing import BusRig, message, new_topic
from pillarbox.testing.contract.powers import refusing
from tests.bus.rigs import BROKERS, rig_for
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")


@pytest.fixture(params=BROKERS)
def rig(request: pytest.FixtureRequest) -> BusRig:
    """Each broker in turn, on the servers that all tests share."""
    return rig_for(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
async def bus(rig: BusRig) -> AsyncIterator[MessageBus]:
    made = rig.bus()
    yield made
    await made.close()


async def make_refused(shop: Shop, rig: BusRig, topic: str, event_id: str) -> None:
    """Make an event so large that the broker refuses it."""
    refused = await refusing(rig).refuse(message(topic))
    await shop.resize(event_id, len(refused.data or b""))


async def first_copies(rig: BusRig, topic: str, ids: Sequence[str]) -> list[str]:
    """Return which of these events a broker keeps, in the order in which each came first."""
    wanted = set(ids)
    stored = dict.fromkeys(found.event_id for found in await rig.read(topic))
    return [event_id for event_id in stored if event_id in wanted]


async def test_a_refused_message_in_the_middle_of_a_hot_key_holds_its_successors(
    shop: Shop, rig: BusRig, bus: MessageBus
) -> None:
    topic = new_topic()
    ids = await shop.add(*["hot"] * 60, topic=topic)
    await make_refused(shop, rig, topic, ids[30])

    async with shop.configured(max_retry_attempts=1000).projecting(message_bus=bus):
        await shop.sent(ids[:30], limit=30)
        others = await shop.add("cold", topic=topic)
        await shop.sent(others, limit=30)
        held = await first_copies(rig, topic, ids)
        await shop.resize(ids[30], 10)
        await shop.sent(ids, limit=60)

    assert held == ids[:30]
    assert await first_copies(rig, topic, ids) == ids
    assert {i for i, n in (await shop.attempts()).items() if n} == {ids[30]}


async def test_one_refused_among_many_keys_costs_no_other_an_attempt(
    shop: Shop, rig: BusRig, bus: MessageBus
) -> None:
    topic = new_topic()
    ids = await shop.add_together(*[f"k{n}" for n in range(1000)], topic=topic)
    bad = ids[500]
    await make_refused(shop, rig, topic, bad)

    async with shop.configured(max_retry_attempts=2).projecting(message_bus=bus):
        await shop.sent([i for i in ids if i != bad], limit=60)
        await shop.status([bad], "DEAD", limit=30)

    assert {i for i, n in (await shop.attempts()).items() if n} == {bad}
    assert set(await first_copies(rig, topic, ids)) == set(ids) - {bad}
