"""A Pulsar whose disk is full: its bookie becomes read-only."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.servers import Pulsar
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_pulsar import quiet_client, read_topic, stored
from tests.support.disk import Disk, small_disk
from tests.support.waiting import until

LIMIT = timedelta(seconds=4)
SIZE, LEFT = 500, 160  # megabytes
FULL = 0.5

pytestmark = [pytest.mark.faults, pytest.mark.servers("pulsar"), pytest.mark.timeout(300)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", SIZE) as made:
        yield made


@pytest.fixture
def server(disk: Disk) -> Iterator[Pulsar]:
    settings: dict[str, str | float] = {
        "diskUsageThreshold": FULL,
        "diskUsageWarnThreshold": FULL,
        "diskUsageLwmThreshold": FULL,
        "diskCheckInterval": 200,
        "defaultRetentionTimeInMinutes": 600,
        "defaultRetentionSizeInMB": -1,
    }
    with Pulsar(folder=disk.folder, settings=settings) as made:
        yield made


async def test_a_full_disk_is_waited_out_and_what_was_accepted_is_there(
    disk: Disk, server: Pulsar
) -> None:
    topic = new_topic()
    bus = PulsarMessageBus(server.url, publish_timeout=LIMIT)
    before = [message(topic, n) for n in range(20)]
    later = message(topic)
    outcomes: list[PublishOutcome] = []

    async def closed() -> bool:
        outcomes.extend(await bus.publish([message(topic)]))
        return len(outcomes) > 1 and ACCEPTED not in outcomes[-2:]

    async def accepted() -> bool:
        return [*await bus.publish([later])] == [ACCEPTED]

    assert await bus.publish(before) == [ACCEPTED] * 20
    disk.fill(leave=LEFT)
    await until(closed, "the bookie is read-only", 60)
    [elsewhere] = await bus.publish([message(new_topic())])
    disk.clear()
    await until(accepted, "there is room again", 90)
    await bus.close()
    found = [stored(each) for each in read_topic(quiet_client(server), topic)]

    # The client is not told why: it connects anew until the limit, and opens no other topic.
    assert kinds(outcomes[-2:]) == ["Unknown"] * 2
    assert isinstance(elsewhere, Unavailable)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert {*ids(before), later.event_id} <= set(ids(found))
