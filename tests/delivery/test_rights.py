"""A right that is taken away for a while, on every broker, under load."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import PublishOutcome, Unavailable
from pillarbox.testing import message, new_topic
from tests.bus.rights import RightsRig, rights_rigs
from tests.bus.rigs import BROKERS
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = [
    on("postgres18+psycopg"),
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.servers(*BROKERS),
]
MINUTE = timedelta(minutes=1)
PACE = 0.4
KEYS = tuple(f"k{n}" for n in range(40))
LEAST = 200  # events a second, all brokers together; unhindered it is 500


@pytest.fixture
def rigs(request: pytest.FixtureRequest) -> Iterator[list[RightsRig]]:
    with rights_rigs(request) as made:
        yield made


@dataclass(slots=True)
class Branch:
    """A tenant whose events go to one of the brokers."""

    shop: Shop
    rig: RightsRig
    bus: MessageBus
    topic: str = field(default_factory=new_topic)
    ids: list[str] = field(default_factory=list)

    async def sell(self) -> None:
        """Commit an event of each key."""
        tenant = self.rig.name
        self.ids += await self.shop.add_together(*KEYS, topic=self.topic, tenant=tenant)

    async def open(self, stack: AsyncExitStack) -> None:
        """Publish a first few events, and further ones until the stack is left."""
        stack.push_async_callback(self.bus.close)
        await self.rig.grant(self.topic)
        projecting = self.shop.projecting(message_bus=self.bus, tenant_id=self.rig.name)
        await stack.enter_async_context(projecting)
        await self.sell()
        await self.shop.sent(self.ids, limit=60)

    async def lose_right(self) -> PublishOutcome:
        """Take the right away; return what the bus of the projector says of it."""
        said: list[PublishOutcome] = []

        async def heeded() -> bool:
            said[:] = await self.bus.publish([message(self.topic)])
            return isinstance(said[0], Unavailable)

        await self.rig.forbid(self.topic)
        await until(heeded, f"{self.rig.name} heeds that the right is gone")
        return said[0]

    async def keeps_order(self) -> bool:
        """Tell whether the broker has every event, those of each key in their order."""
        found = dict.fromkeys(stored.event_id for stored in await self.rig.read(self.topic))
        places = {event_id: place for place, event_id in enumerate(found)}
        lanes = [self.ids[place :: len(KEYS)] for place in range(len(KEYS))]
        return set(self.ids) <= places.keys() and all(
            sorted(lane, key=places.__getitem__) == lane for lane in lanes
        )


async def sell_for(time: timedelta, branches: Sequence[Branch]) -> float:
    """Commit events in every branch, at a steady pace; return how many a second."""
    loop = asyncio.get_running_loop()
    begun, sold = loop.time(), 0
    while (took := loop.time() - begun) < time.total_seconds():
        await asyncio.gather(*(branch.sell() for branch in branches), asyncio.sleep(PACE))
        sold += len(KEYS) * len(branches)
    return sold / took


async def test_a_right_that_is_gone_for_a_minute_costs_no_attempt_and_no_order(
    shop: Shop, rigs: list[RightsRig]
) -> None:
    branches = [Branch(shop, rig, rig.bus()) for rig in rigs]

    async with AsyncExitStack() as stack:
        for branch in branches:
            await branch.open(stack)
        before = {event_id for branch in branches for event_id in branch.ids}
        said = {branch.rig.name: await branch.lose_right() for branch in branches}
        pace = await sell_for(MINUTE, branches)
        during = await shop.standing()
        for branch in branches:
            await branch.rig.permit(branch.topic)
        await shop.drained(limit=180)

    assert {name: getattr(found, "topic", None) for name, found in said.items()} == {
        branch.rig.name: branch.topic for branch in branches
    }
    assert pace >= LEAST
    assert {event_id for event_id, status in during.items() if status == "SENT"} == before
    assert not {"FAILED", "DEAD"} & set(during.values())
    assert set((await shop.attempts()).values()) == {0}
    for branch in branches:
        assert await branch.keeps_order(), branch.rig.name
