"""Rates that operators set: what is only set aside costs nothing of them."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Final

from sqlalchemy import insert

from pillarbox import SqlAlchemyOutbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.outcome import Refused
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from pillarbox.schema.tables import outbox_control
from tests.projector_stores.test_projector_through_sessions import Sessions, sqlite
from tests.support.orders import Noted
from tests.support.waiting import until

TOPIC: Final = "notes"


async def limit(sessions: Sessions, rate: int, *, tenant: str = "*", topic: str = "*") -> None:
    limited = {"tenant_id": tenant, "topic": topic, "paused": 0, "events_per_second": rate}
    async with sessions.begin() as session:
        await session.execute(insert(outbox_control).values(limited))


async def note(sessions: Sessions, *keys: str) -> None:
    async with sessions.begin() as session:
        outbox = SqlAlchemyOutbox(session)
        for key in keys:
            await outbox.add(Noted(key), key=key, topic=TOPIC)


async def test_a_limited_topic_goes_at_its_rate_while_more_comes_than_that(tmp_path: Path) -> None:
    """Nothing of it went at all: what was set aside had spent what came back a second later."""
    bus, numbers = MemoryMessageBus(), count()
    config = OutboxProjectorConfig(batch_size=100, sleep_idle=0.5)
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        await limit(sessions, 20, topic=TOPIC)
        projector = OutboxProjector(sessions, bus, config=config)
        group.create_task(projector.run_forever())

        async def enough_went_while_more_came() -> bool:
            await note(sessions, f"key-{next(numbers)}")
            return len(bus.messages) >= 80

        await until(enough_went_while_more_came, "the events of three seconds more", 12)
        projector.stop()


async def test_events_of_a_blocked_key_cost_their_tenant_nothing_of_its_rate(
    tmp_path: Path,
) -> None:
    bus = MemoryMessageBus()
    bus.fail_with(lambda message: message.key == "bad", Refused("too-large", "in this test"))
    config = OutboxProjectorConfig(sleep_idle=0.5, retry_delay=300, retry_delay_max=300)
    async with sqlite(tmp_path) as sessions, asyncio.TaskGroup() as group:
        await limit(sessions, 20, tenant="default")
        await note(sessions, *["bad"] * 300, "good")
        projector = OutboxProjector(sessions, bus, config=config)
        group.create_task(projector.run_forever())

        async def the_good_one_went() -> bool:
            return len(bus.messages) == 1

        await until(the_good_one_went, "the event of the other key", 8)
        projector.stop()
