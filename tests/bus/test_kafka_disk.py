"""A Kafka whose disk is full."""

import asyncio
import resource
from datetime import timedelta

import pytest

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.outcome import ACCEPTED, Refused
from tests.bus.rig import ids, message, new_topic
from tests.bus.rig_kafka import KafkaRig
from tests.support.brokers import LinedKafka
from tests.support.waiting import until

LIMIT = timedelta(seconds=4)
NO_ROOM = 1_000  # bytes that a file may have: each that is longer cannot grow, as on a full disk

pytestmark = [pytest.mark.faults, pytest.mark.servers("kafka"), pytest.mark.timeout(240)]


async def test_a_full_disk_refuses_nothing_and_what_was_accepted_is_there_afterwards() -> None:
    topic = new_topic()
    with LinedKafka() as server:
        bus = KafkaMessageBus(server.bootstrap, publish_timeout=LIMIT)
        before = [message(topic, n, data=b"x" * 5_000) for n in range(20)]
        assert await bus.publish(before) == [ACCEPTED] * 20

        _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (NO_ROOM, most))
        later = message(topic)
        async with asyncio.timeout(LIMIT.total_seconds() + 1):
            [during] = await bus.publish([later])
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)

        async def accepted() -> bool:
            return await bus.publish([later]) == [ACCEPTED]

        await until(accepted, "room is used again", 60)
        await bus.close()
        found = ids(await KafkaRig(server).read(topic))

    assert not isinstance(during, Refused)
    assert during != ACCEPTED
    assert sorted(each for each in found if each != later.event_id) == sorted(ids(before))
    assert later.event_id in found
