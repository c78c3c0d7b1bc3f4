"""A Kafka whose disk is full."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_kafka import KafkaRig
from tests.support.brokers import LinedKafka
from tests.support.disk import Disk, small_disk
from tests.support.waiting import until

LIMIT = timedelta(seconds=4)
SIZE = 200

pytestmark = [pytest.mark.faults, pytest.mark.servers("kafka"), pytest.mark.timeout(240)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", SIZE) as made:
        yield made


async def test_a_full_disk_refuses_nothing_and_what_was_accepted_is_there_afterwards(
    disk: Disk,
) -> None:
    """Kafka does not say that its disk is full: it does not answer, so that nobody knows."""
    topic = new_topic()
    with LinedKafka(folder=disk.folder) as server:
        bus = KafkaMessageBus(server.bootstrap, publish_timeout=LIMIT)
        before = [message(topic, n, data=b"x" * 5_000) for n in range(20)]
        assert await bus.publish(before) == [ACCEPTED] * 20

        disk.fill()
        large, later = message(topic, data=b"x" * 500_000), message(topic)
        outcomes: list[PublishOutcome] = []
        for _ in range(3):
            async with asyncio.timeout(LIMIT.total_seconds() + 1):
                outcomes += await bus.publish([large])
        disk.clear()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)

        async def accepted() -> bool:
            return await bus.publish([later]) == [ACCEPTED]

        await until(accepted, "room is used again", 60)
        await bus.close()
        found = ids(await KafkaRig(server).read(topic))

    assert kinds(outcomes) == ["Unknown"] * 3
    assert sorted(each for each in found if each in set(ids(before))) == sorted(ids(before))
    assert later.event_id in found
