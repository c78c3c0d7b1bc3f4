"""Refusals and closed topics on real brokers, through the projector: who is held, who is counted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.testing import BusRig, message, new_topic
from pillarbox.testing.contract.powers import forbidding, refusing
from tests.bus.rigs import BROKERS, rig_for
from tests.delivery.shop import Shop
from tests.support.database import on

pytestmark = on("postgres18+psycopg")
MINUTE = timedelta(minutes=1)
PACE = 0.4
KEYS = ("a", "b", "c")


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


@dataclass(frozen=True, slots=True)
class Branch:
    """A tenant whose events go to one of the brokers."""

    shop: Shop
    rig: BusRig
    topic: str = field(default_factory=new_topic)
    ids: list[str] = field(default_factory=list)

    async def sell(self) -> None:
        """Commit an event of each key."""
        self.ids.extend(await self.shop.add(*KEYS, topic=self.topic, tenant=self.rig.name))

    async def open(self, stack: AsyncExitStack) -> None:
        """Publish a first few events, and further ones until the stack is left."""
        bus = self.rig.bus()
        stack.push_async_callback(bus.close)
        projecting = self.shop.projecting(message_bus=bus, tenant_id=self.rig.name)
        await stack.enter_async_context(projecting)
        await self.sell()
        await self.shop.sent(self.ids, limit=60)

    async def keeps_order(self) -> bool:
        """Tell whether the broker has every event, those of each key in their order."""
        lanes = [self.ids[place :: len(KEYS)] for place in range(len(KEYS))]
        return [await first_copies(self.rig, self.topic, lane) for lane in lanes] == lanes


async def sell_for(time: timedelta, branches: Sequence[Branch]) -> None:
    """Commit events in every branch, at a steady pace."""
    loop = asyncio.get_running_loop()
    over = loop.time() + time.total_seconds()
    while loop.time() < over:
        await asyncio.gather(*(branch.sell() for branch in branches), asyncio.sleep(PACE))


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.servers(*BROKERS)
async def test_topics_that_are_closed_for_a_minute_cost_no_attempt_and_no_order(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    rigs = [rig_for(request.getfixturevalue(f"{name}_server")) for name in BROKERS]
    branches = [Branch(shop, rig) for rig in rigs]

    async with AsyncExitStack() as stack:
        for branch in branches:
            await branch.open(stack)
        before = {event_id for branch in branches for event_id in branch.ids}
        for branch in branches:
            await forbidding(branch.rig).forbid(branch.topic)
        await sell_for(MINUTE, branches)
        during = await shop.standing()
        for branch in branches:
            await forbidding(branch.rig).permit(branch.topic)
        for branch in branches:
            await shop.sent(branch.ids, limit=90)

    assert {event_id for event_id, status in during.items() if status == "SENT"} == before
    assert not {"FAILED", "DEAD"} & set(during.values())
    assert set((await shop.attempts()).values()) == {0}
    for branch in branches:
        assert await branch.keeps_order(), branch.rig.name
