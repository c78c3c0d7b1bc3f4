"""What only Redis does: its streams, its fields, its partitions and its limits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED, Accepted, PublishOutcome, Refused, Unavailable, Unknown
from pillarbox.bus.partition import partition_for
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.bus.redis.outcomes import outcome_of
from pillarbox.errors import BusUnreachable
from pillarbox.servers import Redis
from pillarbox.servers.ports import LOOPBACK
from tests.bus.rig import ids, kinds, message, new_topic
from tests.bus.rig_redis import TOO_LARGE, RedisRig

SECRET = "hunter2"


@pytest.fixture
async def bus(redis_server: Redis) -> AsyncIterator[MessageBus]:
    made = RedisMessageBus(redis_server.url)
    yield made
    await made.close()


@pytest.fixture
async def client(redis_server: Redis) -> AsyncIterator[Any]:
    async with Client.from_url(redis_server.url, decode_responses=True) as made:
        yield made


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server seem to be on another machine."""
    monkeypatch.setattr("pillarbox.bus.redis.bus.all_loopback", lambda _: False)


async def test_an_entry_has_the_body_the_key_and_each_header_as_a_field(
    bus: MessageBus, client: Any
) -> None:
    topic = new_topic()
    sent = message(topic, 7, data=b"body", headers={"x": "y"})

    assert await bus.publish([sent]) == [ACCEPTED]

    [(_, fields)] = await client.xrange(topic)
    assert (fields["data"], fields["key"], fields["x"]) == ("body", "order-7", "y")
    assert (fields["ce_id"], fields["event_id"]) == (sent.event_id, sent.event_id)
    assert (fields["ce_type"], fields["ce_specversion"]) == ("OrderPaid", "1.0")


async def test_what_is_not_there_has_no_field(bus: MessageBus, client: Any) -> None:
    topic = new_topic()

    assert await bus.publish([message(topic, data=None, key=None)]) == [ACCEPTED]

    [(_, fields)] = await client.xrange(topic)
    assert not {"data", "key", "content-type"} & set(fields)


async def test_headers_named_like_the_body_and_the_key_hide_neither(
    bus: MessageBus, client: Any
) -> None:
    topic = new_topic()
    own = {"data": "1", "key": "2", "header_data": "3", "Data": "4"}

    assert await bus.publish([message(topic, data=b"body", key="k", headers=own)]) == [ACCEPTED]

    [(_, fields)] = await client.xrange(topic)
    assert (fields["data"], fields["key"], fields["Data"]) == ("body", "k", "4")
    escaped = ("header_data", "header_key", "header_header_data")
    assert [fields[name] for name in escaped] == ["1", "2", "3"]


async def test_partitions_keep_a_key_together_and_spread_the_keys(redis_server: Redis) -> None:
    topic = new_topic()
    bus = RedisMessageBus(redis_server.url, partitions=4)
    batch = [message(topic, n, key=f"key-{n % 20}") for n in range(100)]

    outcomes = await bus.publish(batch)
    await bus.close()

    assert outcomes == [ACCEPTED] * 100
    for place in range(4):
        stored = ids(await RedisRig(redis_server).read(f"{topic}.p{place}"))
        meant = [sent for sent in batch if partition_for(sent, 4) == f"{topic}.p{place}"]
        assert stored == ids(meant)
        assert meant


async def test_apply_makes_every_partition_and_leaves_it_empty(
    redis_server: Redis, client: Any
) -> None:
    topic = new_topic()
    bus = RedisMessageBus(redis_server.url, partitions=3)

    made, again = await bus.apply([topic]), await bus.apply([topic])
    await bus.close()

    assert made == [f"{topic}.p{place}" for place in range(3)]
    assert again == []
    found = [await client.xinfo_stream(stream) for stream in made]
    assert [(info["length"], info["groups"]) for info in found] == [(0, 0)] * 3


async def test_several_who_apply_at_the_same_time_do_not_disturb_each_other(
    redis_server: Redis, client: Any
) -> None:
    topic = new_topic()
    buses = [RedisMessageBus(redis_server.url) for _ in range(8)]

    made = await asyncio.gather(*(bus.apply([topic]) for bus in buses))

    assert [topic] in made
    assert (await client.xinfo_stream(topic))["groups"] == 0


async def test_apply_says_why_it_may_not(redis_server: Redis, client: Any) -> None:
    await client.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+type")
    bus = RedisMessageBus(f"redis://reader:secret@{LOOPBACK}:{redis_server.port}")

    with pytest.raises(BusUnreachable, match="permissions"):
        await bus.apply([new_topic()])

    await client.execute_command("ACL", "DELUSER", "reader")


@pytest.mark.usefixtures("elsewhere")
async def test_a_missing_stream_on_another_machine_is_unavailable_until_it_is_applied(
    redis_server: Redis, client: Any
) -> None:
    missing, there = new_topic(), new_topic()
    bus = RedisMessageBus(redis_server.url)
    await bus.apply([there])

    outcomes = await bus.publish([message(missing), message(there)])
    untouched = await client.exists(missing)
    await bus.apply([missing])
    again = await bus.publish([message(missing)])
    await bus.close()

    assert isinstance(outcomes[0], Unavailable)
    assert (outcomes[0].code, outcomes[0].topic) == ("no-stream", missing)
    assert (outcomes[1], again, untouched) == (ACCEPTED, [ACCEPTED], 0)


async def test_nothing_is_trimmed_unless_a_length_is_given(
    redis_server: Redis, bus: MessageBus, client: Any
) -> None:
    kept, trimmed = new_topic(), new_topic()
    short = RedisMessageBus(redis_server.url, max_length=100)

    await bus.publish([message(kept, n) for n in range(1_000)])
    await short.publish([message(trimmed, n) for n in range(1_000)])
    said = await short.start()
    await short.close()

    assert await client.xlen(kept) == 1_000
    assert 100 <= await client.xlen(trimmed) < 400
    assert any("max_length is 100" in sentence for sentence in said)


async def test_a_key_of_another_type_is_told_by_its_topic(bus: MessageBus, client: Any) -> None:
    taken, free = new_topic(), new_topic()
    await client.set(taken, "no stream")

    outcomes = await bus.publish([message(taken), message(free)])

    assert isinstance(outcomes[0], Unavailable)
    assert (outcomes[0].code, outcomes[0].topic) == ("WRONGTYPE", taken)
    assert outcomes[1] == ACCEPTED


async def test_what_no_server_takes_is_refused_and_its_neighbours_pass(bus: MessageBus) -> None:
    topic = new_topic()
    batch = [
        message(topic, 1),
        message(topic, 2, data=TOO_LARGE),
        message("two words"),
        message(topic, 3, headers={"x": "\ud800"}),
        message(topic, 4),
    ]

    outcomes = await bus.publish(batch)

    assert kinds(outcomes) == ["Accepted", "Refused", "Refused", "Refused", "Accepted"]


async def test_one_by_one_stops_a_key_at_its_refused_message(bus: MessageBus) -> None:
    topic = new_topic()
    batch = [message(topic, key="k", data=TOO_LARGE), message(topic, key="k"), message(topic)]

    outcomes = await bus.publish(batch, one_by_one=True)

    assert [type(outcome) for outcome in outcomes] == [Refused, Unknown, Accepted]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"appendonly": "no"}, "appendonly is no"),
        ({"appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"proto-max-bulk-len": "1048576"}, "takes messages up to 1,048,576 bytes"),
        ({}, "no replica is connected"),
    ],
)
async def test_start_says_what_would_lose_events(
    bus: MessageBus, client: Any, settings: dict[str, str], sentence: str
) -> None:
    before = {name: (await client.config_get(name))[name] for name in settings}
    for name, value in settings.items():
        await client.config_set(name, value)

    said = await bus.start()
    for name, value in before.items():
        await client.config_set(name, value)

    assert any(sentence in weak for weak in said)
    assert len(said) == len(settings) + 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"1700000000000-0", ACCEPTED),
        (b"$-1", ("no-stream", "t")),
        (b"-OOM command not allowed when used memory > 'maxmemory'.", ("OOM", None)),
        (b"-MISCONF Errors writing to the AOF file: No space left on device", ("MISCONF", None)),
        (b"-READONLY You can't write against a read only replica.", ("READONLY", None)),
        (b"-NOREPLICAS Not enough good replicas to write.", ("NOREPLICAS", None)),
        (b"-LOADING Redis is loading the dataset in memory", ("LOADING", None)),
        (b"-MASTERDOWN Link with MASTER is down", ("MASTERDOWN", None)),
        (b"-CLUSTERDOWN The cluster is down", ("CLUSTERDOWN", None)),
        (b"-BUSY Redis is busy running a script.", ("BUSY", None)),
        (b"-NOAUTH Authentication required.", ("NOAUTH", None)),
        (b"-NOPERM No permissions to access a key", ("NOPERM", "t")),
        (b"-NOPERM User app has no permissions to run the 'xadd' command", ("NOPERM", None)),
        (b"-WRONGTYPE Operation against a key", ("WRONGTYPE", "t")),
        (b"-MOVED 3999 127.0.0.1:6381", ("MOVED", "t")),
        (b"-ERR Protocol error: unauthenticated bulk length", ("protocol-error", None)),
        (b"-ERR The stream has exhausted the last possible ID", ("ERR", "t")),
    ],
)
def test_each_answer_has_its_class(
    answer: bytes, expected: PublishOutcome | tuple[str, str | None]
) -> None:
    outcome = outcome_of(answer, "t")

    if isinstance(outcome, Unavailable):
        assert (outcome.code, outcome.topic) == expected
    else:
        assert outcome == expected
