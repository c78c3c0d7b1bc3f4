"""What comes to a tenant without a backlog is sent although others fill the hand, on PostgreSQL."""

import asyncio
from collections.abc import Sequence

from pillarbox import MemoryMessageBus, MessageEnvelope
from pillarbox.bus.outcome import PublishOutcome
from tests.delivery.shop import Shop
from tests.support.database import on
from tests.support.waiting import until

pytestmark = on("postgres18+psycopg", "postgres18+asyncpg")


class HeldBus(MemoryMessageBus):
    """A bus that keeps one tenant's messages until it is told to let them pass."""

    def __init__(self, tenant: str) -> None:
        super().__init__()
        self.tenant, self.waiting = tenant, 0
        self.let_pass = asyncio.Event()

    async def publish(
        self, messages: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        if any(message.tenant_id == self.tenant for message in messages):
            self.waiting += 1
            await self.let_pass.wait()
        return await super().publish(messages, one_by_one=one_by_one)


async def test_news_passes_a_full_hand_and_calls_that_get_no_answer(shop: Shop) -> None:
    bus = HeldBus("loud")
    shop.bus = bus
    shop.configured(batch_size=16, batches_in_hand=2)
    loud = await shop.add(*[f"k{n}" for n in range(100)], tenant="loud")

    async with shop.projecting():

        async def full() -> bool:
            return bus.waiting == 2

        await until(full, "both calls wait for an answer")
        quiet = await shop.add("k", tenant="quiet")
        await shop.sent(quiet)
        assert shop.delivered() == quiet
        bus.let_pass.set()
        await shop.sent(loud)
