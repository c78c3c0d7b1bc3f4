"""Whatever a bus answers: each key's events arrive in order, all of them, by either store."""

import asyncio
import random
from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from pillarbox import OutboxRecord, SqlAlchemyOutbox
from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.outcome import Refused, Unavailable, Unknown
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import MEMORY
from pillarbox.projector.config import OutboxProjectorConfig
from pillarbox.projector.projector import OutboxProjector
from tests.projector_stores.rig import Rig
from tests.support.orders import Noted
from tests.support.waiting import until

KEYS, EVENTS = 6, 60
PATIENT = OutboxProjectorConfig(
    batch_size=10,
    batches_in_hand=2,
    max_retry_attempts=1_000,
    retry_delay=0.001,
    retry_delay_max=0.002,
    sleep_busy=0.01,
    sleep_idle=0.02,
)


def unreliable(chance: random.Random, *, pipelines: bool) -> MemoryMessageBus:
    """Make a bus that refuses, loses answers and is away now and then."""
    bus = MemoryMessageBus(Capabilities(MEMORY, pipelines_keys=pipelines))

    def sometimes(share: float) -> Callable[[MessageEnvelope], bool]:
        return lambda _: chance.random() < share

    bus.fail_with(sometimes(0.05), Refused("bad", "in this test"))
    bus.fail_with(sometimes(0.05), Refused("bad", "in this test", certain=False))
    bus.fail_with(sometimes(0.02), Unknown("lost", "in this test"), store=True)
    bus.fail_with(sometimes(0.02), Unknown("lost", "in this test"))
    bus.fail_with(sometimes(0.02), Unavailable("full", "in this test", topic="default.note"))
    return bus


async def record(sessions: async_sessionmaker[AsyncSession], chance: random.Random) -> None:
    for number in range(EVENTS):
        async with sessions.begin() as session:
            outbox = SqlAlchemyOutbox(session, tenant_id=f"tenant-{number % 2}")
            await outbox.add(Noted(str(number)), key=f"note-{chance.randrange(KEYS)}")


def first_copies(bus: MemoryMessageBus) -> dict[tuple[str, str | None], list[int]]:
    """Return the numbers of each key's events, in the order of their first publication."""
    seen: dict[tuple[str, str | None], dict[int, None]] = {}
    for message in bus.messages:
        number = int((message.body() or b"").decode().split('"')[3])
        seen.setdefault((message.tenant_id, message.key), {})[number] = None
    return {key: list(numbers) for key, numbers in seen.items()}


@pytest.mark.parametrize("pipelines", [False, True])
@pytest.mark.parametrize("seed", range(2))
async def test_each_key_arrives_in_order(rig: Rig, seed: int, pipelines: bool) -> None:
    chance = random.Random(seed)
    bus = unreliable(chance, pipelines=pipelines)
    through = rig.kind.startswith("session")
    projector = OutboxProjector(
        rig.database.sessions, bus, config=PATIENT, through_session=through, chance=chance
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(projector.run_forever())
        await record(rig.database.sessions, chance)
        await until(lambda: everything_sent(rig), "every event is sent", limit=60)
        projector.stop()

    copies = first_copies(bus)
    assert sum(len(numbers) for numbers in copies.values()) == EVENTS
    for numbers in copies.values():
        assert numbers == sorted(numbers)
    assert await rig.blocked() == {}


async def everything_sent(rig: Rig) -> bool:
    async with rig.database.sessions() as session:
        left = select(OutboxRecord.id).where(OutboxRecord.status != "SENT").limit(1)
        return await session.scalar(left) is None
