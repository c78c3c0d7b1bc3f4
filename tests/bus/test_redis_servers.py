"""Redis servers that are full, read-only, forbidden or alone, each one of our own."""

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Unavailable, Unknown
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.servers import Login, Redis
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_redis import RedisRig
from tests.support.waiting import until

SHORT = timedelta(seconds=2)

pytestmark = pytest.mark.servers("redis")


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis() as made:
        yield made


@pytest.fixture
def replica() -> Iterator[Redis]:
    with Redis() as made:
        yield made


@pytest.fixture
async def client(server: Redis) -> AsyncIterator[Any]:
    async with Client.from_url(server.url, decode_responses=True) as made:
        yield made


@pytest.fixture
async def bus(server: Redis) -> AsyncIterator[MessageBus]:
    made = RedisMessageBus(server.url, publish_timeout=SHORT)
    yield made
    await made.close()


async def follow(replica: Redis, server: Redis) -> None:
    """Make one server the replica of another, and wait until it is in step."""
    client: Any
    async with Client.from_url(server.url) as client:
        # Else the server would wait for further replicas, five seconds long.
        await client.config_set("repl-diskless-sync-delay", "0")
    async with Client.from_url(replica.url) as client:
        await client.replicaof(LOOPBACK, str(server.port))

        async def in_step() -> bool:
            return bool((await client.info("replication"))["master_link_status"] == "up")

        await until(in_step, "the replica follows")


async def accepted_again(bus: MessageBus, topic: str) -> None:
    async def accepted() -> bool:
        return list(await bus.publish([message(topic)])) == [ACCEPTED]

    await until(accepted, "messages are accepted again", 20)


async def as_user(server: Redis, client: Any, *rules: str) -> MessageBus:
    """Return a bus of a user with these rights."""
    await client.execute_command("ACL", "SETUSER", "app", "on", ">secret", *rules)
    return RedisMessageBus(f"redis://app:secret@{LOOPBACK}:{server.port}")


def careful(server: Redis) -> MessageBus:
    return RedisMessageBus(server.url, replicas=1, publish_timeout=SHORT)


def problem(outcome: PublishOutcome) -> tuple[str, str | None]:
    assert isinstance(outcome, Unavailable)
    return outcome.code, outcome.topic


async def test_a_full_memory_is_unavailable_until_there_is_room(
    bus: MessageBus, client: Any
) -> None:
    topic = new_topic()
    await client.config_set("maxmemory", "1mb")

    outcomes = await bus.publish([message(topic, n) for n in range(3)])
    await client.config_set("maxmemory", "0")

    assert [problem(outcome) for outcome in outcomes] == [("OOM", None)] * 3
    assert await bus.publish([message(topic)]) == [ACCEPTED]


async def test_a_disk_that_cannot_be_written_is_unavailable(
    server: Redis, bus: MessageBus, client: Any
) -> None:
    await client.config_set("save", "3600 1")
    rmtree(server.folder / "data")
    await client.bgsave()

    async def failed() -> bool:
        return bool((await client.info("persistence"))["rdb_last_bgsave_status"] == "err")

    await until(failed, "the snapshot has failed")

    [outcome] = await bus.publish([message(new_topic())])

    assert problem(outcome) == ("MISCONF", None)


async def test_a_replica_is_read_only_until_it_is_promoted(
    server: Redis, replica: Redis, bus: MessageBus, client: Any
) -> None:
    topic = new_topic()
    await follow(server, replica)

    [outcome] = await bus.publish([message(topic)])
    said = await bus.start()
    await client.replicaof("NO", "ONE")

    assert problem(outcome) == ("READONLY", None)
    assert said == ["the server is a replica: it takes no messages"]
    assert await bus.publish([message(topic)]) == [ACCEPTED]


async def test_a_topic_that_is_not_permitted_is_told_by_its_name(
    server: Redis, client: Any
) -> None:
    open_, closed = f"open.{new_topic()}", f"closed.{new_topic()}"
    bus = await as_user(server, client, "~open.*", "+xadd")

    outcomes = await bus.publish([message(closed), message(open_)])
    said = await bus.start()
    await bus.close()

    assert problem(outcomes[0]) == ("NOPERM", closed)
    assert outcomes[1] == ACCEPTED
    assert "could not be seen" in said[0]


async def test_a_user_who_may_not_add_is_unavailable_as_a_whole(server: Redis, client: Any) -> None:
    bus = await as_user(server, client, "~*", "+ping")

    [outcome] = await bus.publish([message(new_topic())])
    await client.execute_command("ACL", "SETUSER", "app", "+xadd")
    again = await bus.publish([message(new_topic())])
    await bus.close()

    assert problem(outcome) == ("NOPERM", None)
    assert again == [ACCEPTED]


async def test_the_rights_that_the_guide_names_are_enough(server: Redis, client: Any) -> None:
    guide = Path(__file__).parents[2] / "docs/guides/redis.md"
    users = re.findall(r"^ACL SETUSER (\w+) +on >secret (.*)$", guide.read_text(), re.MULTILINE)
    buses = {}
    for user, rights in users:
        await client.execute_command("ACL", "SETUSER", user, "on", ">secret", *rights.split())
        buses[user] = RedisMessageBus(f"redis://{user}:secret@{LOOPBACK}:{server.port}")

    made = await buses["deployer"].apply(["shop.order"])
    said = await buses["projector"].start()
    outcomes = await buses["projector"].publish([message("shop.order")])
    await buses["projector"].close()

    assert (made, outcomes) == (["shop.order"], [ACCEPTED])
    assert not any("could not be seen" in sentence for sentence in said)


async def test_a_login_that_is_missing_is_unavailable_and_no_message_is_blamed() -> None:
    with Redis(login=Login("app", "secret")) as closed:
        bare = RedisMessageBus(closed.url, publish_timeout=SHORT)
        login = RedisMessageBus(closed.url, options={"username": "app", "password": "secret"})

        outcomes = await bare.publish([message(new_topic(), n) for n in range(3)])
        known = await login.publish([message(new_topic())])
        await bare.close()
        await login.close()

    assert [problem(outcome) for outcome in outcomes] == [("unauthorised", None)] * 3
    assert known == [ACCEPTED]


async def test_a_message_over_the_servers_limit_is_refused_and_its_neighbours_pass(
    bus: MessageBus, client: Any
) -> None:
    topic = new_topic()
    await client.config_set("proto-max-bulk-len", "1mb")

    outcomes = await bus.publish(
        [message(topic, 1), message(topic, 2, data=b"x" * 1_100_000), message(topic, 3)]
    )

    assert kinds(outcomes) == ["Accepted", "Refused", "Accepted"]


async def test_a_limit_that_cannot_be_seen_blames_the_guilty_message_alone(
    server: Redis, client: Any
) -> None:
    topic = new_topic()
    bus = await as_user(server, client, "~*", "+xadd")
    await client.config_set("proto-max-bulk-len", "1mb")
    batch = [message(topic, 1), message(topic, 2, data=b"x" * 1_100_000), message(topic, 3)]

    async def blamed() -> bool:
        # The server ends the connection with its answer, which may be lost on the way.
        first, guilty, last = kinds(await bus.publish(batch))
        assert {first, last} <= {"Accepted", "Unknown"}
        assert guilty in {"Refused", "Unknown"}
        return guilty == "Refused"

    await until(blamed, "the guilty message is refused")
    after = await bus.publish([message(topic, 3)])
    await bus.close()

    assert after == [ACCEPTED]


async def test_too_few_replicas_by_the_servers_own_rule_are_unavailable(
    bus: MessageBus, client: Any
) -> None:
    await client.config_set("min-replicas-to-write", "1")

    [outcome] = await bus.publish([message(new_topic())])

    assert problem(outcome) == ("NOREPLICAS", None)


async def test_without_the_replicas_asked_for_nothing_is_stored(server: Redis, client: Any) -> None:
    bus, topic = careful(server), new_topic()

    [outcome] = await bus.publish([message(topic)])
    said = await bus.start()
    await bus.close()

    assert problem(outcome) == ("replicas-missing", None)
    assert not await client.exists(topic)
    assert said == ["0 of 1 replicas are connected: nothing is accepted"]


async def test_a_message_is_accepted_when_the_replicas_have_it(
    server: Redis, replica: Redis
) -> None:
    bus, topic = careful(server), new_topic()
    await follow(replica, server)
    batch = [message(topic, n) for n in range(100)]

    outcomes = await bus.publish(batch)
    said = await bus.start()
    await bus.close()

    assert outcomes == [ACCEPTED] * 100
    assert ids(await RedisRig(replica).read(topic)) == ids(batch)
    assert said == []


async def test_a_replica_that_falls_behind_makes_messages_unknown_and_then_wait(
    server: Redis, replica: Redis, client: Any
) -> None:
    bus, topic = careful(server), new_topic()
    await follow(replica, server)
    assert await bus.publish([message(topic)]) == [ACCEPTED]

    replica.freeze()
    try:
        [stored] = await bus.publish([message(topic)])
        [waits] = await bus.publish([message(topic)])
    finally:
        replica.thaw()
    copies = await client.xlen(topic)
    await accepted_again(bus, topic)
    await bus.close()

    assert isinstance(stored, Unknown)
    assert stored.code == "not-replicated"
    assert problem(waits) == ("replicas-missing", None)
    assert copies == 2
