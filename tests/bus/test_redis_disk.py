"""A Redis whose disk is full."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Unavailable
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Redis
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_redis import RedisRig
from tests.support.disk import Disk, small_disk
from tests.support.waiting import until

LIMIT = timedelta(seconds=4)
SMALL, LARGE = 2, 64

pytestmark = pytest.mark.servers("redis")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", SMALL) as made:
        yield made


@pytest.fixture
def server(disk: Disk) -> Iterator[Redis]:
    with Redis(folder=disk.folder) as made:
        yield made


@pytest.fixture
async def bus(server: Redis) -> AsyncIterator[MessageBus]:
    made = RedisMessageBus(server.url, publish_timeout=LIMIT)
    yield made
    await made.close()


async def fill(bus: MessageBus, topic: str) -> tuple[list[MessageEnvelope], list[PublishOutcome]]:
    """Publish more than the disk holds; return what was accepted, and how the rest went."""
    accepted, rest = [], []
    for _ in range(40):
        large = message(topic, data=b"x" * 100_000)
        [outcome] = await bus.publish([large])
        if outcome == ACCEPTED:
            accepted.append(large)
        else:
            rest.append(outcome)
    return accepted, rest


async def is_stored(server: Redis, topic: str, messages: Sequence[MessageEnvelope]) -> bool:
    return set(ids(messages)) <= set(ids(await RedisRig(server).read(topic)))


async def accepts(bus: MessageBus, topic: str) -> None:
    async def accepted() -> bool:
        return list(await bus.publish([message(topic)])) == [ACCEPTED]

    await until(accepted, "there is room again")


async def test_a_full_disk_is_unavailable_until_there_is_room(
    disk: Disk, server: Redis, bus: MessageBus
) -> None:
    topic = new_topic()
    async with Client.from_url(server.url) as client:
        await client.config_set("appendfsync", "everysec")

    accepted, rest = await fill(bus, topic)
    disk.resize(LARGE)
    await accepts(bus, topic)
    await asyncio.to_thread(server.restart)

    assert isinstance(rest[-1], Unavailable)
    assert (rest[-1].code, rest[-1].topic) == ("MISCONF", None)
    assert set(kinds(rest)) == {"Unavailable"}
    assert await is_stored(server, topic, accepted)


async def test_a_server_that_ends_at_a_full_disk_has_kept_what_it_accepted(
    disk: Disk, server: Redis, bus: MessageBus
) -> None:
    """With `appendfsync always` Redis ends rather than answer for what is not on its disk."""
    topic = new_topic()

    accepted, rest = await fill(bus, topic)
    disk.resize(LARGE)
    await asyncio.to_thread(server.restart)
    await accepts(bus, topic)

    assert kinds(rest) == ["Unknown"] + ["Unavailable"] * (len(rest) - 1)
    assert await is_stored(server, topic, accepted)
