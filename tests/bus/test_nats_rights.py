"""Rights and room of NATS: what may not be published, or has no place, is told at once."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import nats
import pytest

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.outcome import ACCEPTED, Unavailable
from pillarbox.servers import Nats
from tests.bus.closed_nats import ClosedNats
from tests.bus.rig import kinds, message, new_topic
from tests.support.waiting import until

pytestmark = pytest.mark.servers("nats")

LIMIT = timedelta(seconds=10)
AT_ONCE = 3.0
ROOM = 1_000_000
EVERYTHING = 'users: [{ user: "alice", password: "s3cret" }]'


def all_but(*subjects: str) -> str:
    """Return a rule that forbids subjects."""
    denied = ", ".join(f'"{subject}"' for subject in subjects)
    permissions = f"permissions: {{ publish: {{ deny: [{denied}] }} }}"
    return f'users: [{{ user: "alice", password: "s3cret", {permissions} }}]'


def only(**allowed: list[str]) -> str:
    """Return a rule that allows some subjects."""
    rights = ", ".join(f"{verb}: {{ allow: {json.dumps(a)} }}" for verb, a in allowed.items())
    return f'users: [{{ user: "alice", password: "s3cret", permissions: {{ {rights} }} }}]'


@pytest.fixture
def server() -> Iterator[ClosedNats]:
    with ClosedNats(EVERYTHING) as started:
        yield started


@pytest.fixture
async def bus(server: ClosedNats) -> AsyncIterator[MessageBus]:
    made = nats_bus(server)
    yield made
    await made.close()


def nats_bus(server: ClosedNats, partitions: int | None = None) -> MessageBus:
    login = {"user": "alice", "password": "s3cret"}
    return NatsMessageBus(server.url, options=login, publish_timeout=LIMIT, partitions=partitions)


async def test_a_topic_without_the_right_is_unavailable_at_once_and_others_flow(
    server: ClosedNats, bus: MessageBus
) -> None:
    closed, other = new_topic(), new_topic()
    assert await bus.publish([message(closed), message(other)]) == [ACCEPTED] * 2

    server.change_rule(all_but(closed))

    async def is_closed() -> bool:
        return await bus.publish([message(closed)]) != [ACCEPTED]

    await until(is_closed, "the right is taken away")
    begun = time.monotonic()
    outcomes = await bus.publish([message(other), message(closed), message(closed), message(other)])
    took = time.monotonic() - begun
    server.change_rule(EVERYTHING)

    async def is_open() -> bool:
        return await bus.publish([message(closed)]) == [ACCEPTED]

    assert [outcomes[0], outcomes[3]] == [ACCEPTED] * 2
    assert [(type(said), getattr(said, "topic", None)) for said in outcomes[1:3]] == [
        (Unavailable, closed)
    ] * 2
    assert took < AT_ONCE
    await until(is_open, "the topic is open again")


async def test_the_rights_that_the_guide_names_are_enough(server: ClosedNats) -> None:
    topic = new_topic()
    deployer = nats_bus(server)
    await deployer.apply([topic])
    await deployer.close()
    subjects = [topic, "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"]
    server.change_rule(only(publish=subjects, subscribe=["_INBOX.>"]))
    bus = nats_bus(server)

    async def is_narrow() -> bool:
        [said] = await bus.publish([message("elsewhere.topic")])
        return isinstance(said, Unavailable)

    await until(is_narrow, "the rights are narrow")
    weak = await bus.start()
    outcomes = await bus.publish([message(topic), message(topic)])
    await bus.close()

    assert any("copies" in said for said in weak)
    assert outcomes == [ACCEPTED] * 2


async def test_a_partition_without_the_right_is_told_by_its_topic(server: ClosedNats) -> None:
    topic = new_topic()
    server.change_rule(all_but(f"{topic}.p0", f"{topic}.p1"))
    bus = nats_bus(server, partitions=2)

    async def is_told() -> bool:
        [said] = await bus.publish([message(topic)])
        return isinstance(said, Unavailable) and said.topic == topic

    await until(is_told, "the partition is closed")
    await bus.close()


class SmallNats(Nats):
    """A NATS whose streams have little room on the disk."""

    def _prepare(self) -> None:
        super()._prepare()
        config = self.folder / "nats.conf"
        room = f"max_file_store: {ROOM}"
        config.write_text(config.read_text("utf-8").replace("jetstream {", f"jetstream {{ {room}"))


async def test_a_server_whose_disk_is_full_is_unavailable_until_there_is_room() -> None:
    full, other = new_topic(), new_topic()
    with SmallNats() as server:
        bus = NatsMessageBus(server.url, publish_timeout=LIMIT)
        await bus.apply([full, other])
        large = [message(full, data=b"x" * 100_000) for _ in range(20)]

        during = [*await bus.publish(large), *await bus.publish([message(full), message(other)])]
        client = await nats.connect(server.url)
        await client.jetstream().purge_stream(full.partition(".")[0])
        await client.close()
        after = await bus.publish([message(full), message(other)])
        await bus.close()

    assert set(kinds(during)) == {"Accepted", "Unavailable"}
    assert kinds(during[-3:]) == ["Unavailable"] * 3
    assert after == [ACCEPTED] * 2
