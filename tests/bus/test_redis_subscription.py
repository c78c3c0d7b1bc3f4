"""What only Redis does for those who listen: groups, leases, and entries that change hands."""

import re
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from pillarbox.bus.redis import RedisMessageBus
from pillarbox.bus.redis.subscription_leases import share_of
from pillarbox.bus.subscription import UNORDERED, SubscriptionRequest
from pillarbox.errors import InvalidConfig
from pillarbox.servers import Redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import SubscriptionContract, SubscriptionRig, message, new_topic
from pillarbox.testing.subscription.case import Member, numbers
from tests.bus.subscription_rig import publish_all
from tests.bus.subscription_rig_redis import RedisSubscriptionRig, SharedRedisSubscriptionRig
from tests.support.faultproxy import CLIENT, Cut, Drop, FaultProxy
from tests.support.waiting import until

CONSUMER = "payments"
GUIDE = Path(__file__).parents[2] / "docs/guides/redis.md"


@pytest.fixture
async def client(redis_server: Redis) -> AsyncIterator[Any]:
    async with Client.from_url(redis_server.url, decode_responses=True) as made:
        yield made


@pytest.fixture
def request_() -> SubscriptionRequest:
    return SubscriptionRequest(CONSUMER, (new_topic(),))


class TestSharedStreams(SubscriptionContract):
    """Streams without partitions, on which members share every stream."""

    @pytest.fixture
    def rig(self, redis_server: Redis) -> SubscriptionRig:
        return SharedRedisSubscriptionRig(redis_server)


async def ignore(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""


@pytest.mark.parametrize(
    ("members", "count", "shares"),
    [
        (["a"], 4, [4]),
        (["a", "b"], 4, [2, 2]),
        (["b", "c", "a"], 4, [1, 1, 2]),
        (["a", "b", "c", "d", "e"], 4, [1, 1, 1, 1, 0]),
    ],
)
def test_the_shares_of_members_differ_by_one_at_most(
    members: list[str], count: int, shares: list[int]
) -> None:
    assert [share_of(member, members, count) for member in members] == shares


async def test_members_part_the_partitions_between_them(
    redis_server: Redis, request_: SubscriptionRequest, client: Any
) -> None:
    rig, [topic] = RedisSubscriptionRig(redis_server), request_.topics
    members = [rig.subscription(request_) for _ in range(3)]
    for member in members:
        await member.start(ignore)

    async def parted() -> bool:
        found = [
            await client.get(f"{topic}.p{place}:pillarbox:{CONSUMER}:holder") for place in range(4)
        ]
        return sorted(found.count(holder) for holder in {*found} - {None}) == [1, 1, 2]

    await until(parted, "each of three members has its share of four partitions")
    for member in members:
        await member.close()
    assert await client.keys(f"{topic}*:pillarbox:*") == []


async def test_a_header_named_like_the_body_or_the_key_has_its_own_name_again(
    redis_server: Redis, request_: SubscriptionRequest
) -> None:
    own = {"data": "1", "key": "2", "header_data": "3"}
    member = Member(SharedRedisSubscriptionRig(redis_server).subscription(request_))
    await member.start()

    await publish_all(
        RedisMessageBus(redis_server.url), [message(request_.topics[0], key="k", headers=own)]
    )
    [delivery] = await member.take(1)
    await member.subscription.close()

    assert {name: delivery.message.headers[name] for name in own} == own
    assert (delivery.message.key, delivery.message.content_type) == ("k", "application/json")


async def test_what_a_dead_member_had_is_taken_over_when_it_was_silent_for_too_long(
    redis_server: Redis, request_: SubscriptionRequest
) -> None:
    rig = SharedRedisSubscriptionRig(redis_server)
    async with FaultProxy(LOOPBACK, redis_server.port) as proxy:
        dead = Member(rig.bus(address=f"{proxy.host}:{proxy.port}").subscribe(request_))
        await dead.start()
        await rig.publish([message(request_.topics[0], n) for n in range(10)])
        await dead.take(10)
        proxy.now(Cut())
    heir = Member(rig.subscription(request_))
    await heir.start()

    again = await heir.take(10)
    await dead.subscription.close()
    await heir.subscription.close()

    assert numbers(again) == list(range(10))
    assert all(delivery.redelivered for delivery in again)


async def test_entries_whose_answer_was_lost_come_before_later_ones(
    redis_server: Redis, request_: SubscriptionRequest, client: Any
) -> None:
    rig, [topic] = RedisSubscriptionRig(redis_server), request_.topics
    async with FaultProxy(LOOPBACK, redis_server.port) as proxy:
        member = Member(rig.bus(address=f"{proxy.host}:{proxy.port}").subscribe(request_))
        await member.start()
        await rig.publish([message(topic, 0, key="k")])
        [first] = await member.take(1)
        proxy.now(Drop(CLIENT))
        await rig.publish([message(topic, n, key="k") for n in range(1, 6)])
        assert await member.subscription.receive(10) == []
        pending = await client.xpending(first.partition, CONSUMER)

        proxy.now(Cut())
        await rig.publish([message(topic, n, key="k") for n in range(6, 10)])
        taken = await member.take(9)
        await member.subscription.close()

    assert pending["pending"] == 6
    assert numbers(taken) == list(range(1, 10))
    assert [delivery.redelivered for delivery in taken] == [True] * 5 + [False] * 4


async def test_a_group_that_vanished_is_made_again_from_the_first_entry_on(
    redis_server: Redis, request_: SubscriptionRequest, client: Any
) -> None:
    rig, [topic] = SharedRedisSubscriptionRig(redis_server), request_.topics
    member = Member(rig.subscription(request_))
    await member.start()

    await client.delete(topic)
    await rig.publish([message(topic, 7)])
    taken = await member.take(1)
    await member.subscription.close()

    assert numbers(taken) == [7]


async def test_a_missing_stream_on_another_machine_is_told_at_the_start(
    redis_server: Redis,
    request_: SubscriptionRequest,
    client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.bus.redis.bus.all_loopback", lambda _: False)
    bus, [topic] = RedisMessageBus(redis_server.url), request_.topics
    subscription = bus.subscribe(request_)

    with pytest.raises(InvalidConfig, match=f"no stream {topic}.*bus apply"):
        await subscription.start(ignore)
    untouched = await client.exists(topic)
    await bus.apply([topic])
    await subscription.start(ignore)
    await subscription.close()

    assert untouched == 0


async def test_members_that_left_are_forgotten_unless_they_hold_entries(
    redis_server: Redis, request_: SubscriptionRequest, client: Any
) -> None:
    rig, [topic] = SharedRedisSubscriptionRig(redis_server), request_.topics
    await rig.publish([message(topic, n) for n in range(2)])
    idle, busy = Member(rig.subscription(request_)), Member(rig.subscription(request_))
    await busy.start()
    await busy.take(2)
    await idle.start()
    await idle.take_rest()

    await idle.subscription.close()
    await busy.subscription.close()

    [left] = await client.xinfo_consumers(topic, CONSUMER)
    assert left["pending"] == 2


async def test_start_says_what_the_bus_says_of_its_server(
    redis_server: Redis, request_: SubscriptionRequest
) -> None:
    subscription = RedisMessageBus(redis_server.url, max_length=100).subscribe(request_)

    said = await subscription.start(ignore)
    await subscription.close()

    assert any("max_length is 100" in sentence for sentence in said)
    assert any("no replica is connected" in sentence for sentence in said)


async def test_an_entry_may_come_again_at_any_time(
    redis_server: Redis, request_: SubscriptionRequest
) -> None:
    subscription = RedisMessageBus(redis_server.url).subscribe(request_)

    await subscription.start(ignore)
    await subscription.close()

    assert subscription.reception.longest_redelivery is None


@pytest.mark.parametrize("partitions", [None, 2])
async def test_the_rights_of_the_guide_are_enough(
    redis_server: Redis, request_: SubscriptionRequest, client: Any, partitions: int | None
) -> None:
    [topic] = request_.topics
    rights = re.search(r"ACL SETUSER consumer .* ~shop\.\* (.+(?:\n {2,}.+)*)", GUIDE.read_text())
    assert rights is not None
    words = ("consumer", "on", ">secret", f"~{topic}*", *rights[1].split())
    await client.execute_command("ACL", "SETUSER", *words)
    url = f"redis://consumer:secret@{LOOPBACK}:{redis_server.port}"
    ours = RedisMessageBus(redis_server.url, partitions=partitions)
    member = Member(RedisMessageBus(url, partitions=partitions).subscribe(request_))

    await member.start()
    await publish_all(ours, [message(topic, n) for n in range(4)])
    taken = await member.take(4)
    await member.subscription.acknowledge(taken[:2])
    lag = await member.subscription.lag()
    await member.subscription.close()
    await client.execute_command("ACL", "DELUSER", "consumer")

    heir = Member(RedisMessageBus(redis_server.url, partitions=partitions).subscribe(request_))
    await heir.start()
    left = await heir.take(2)
    await heir.subscription.close()
    assert (sorted(numbers(left)), lag) == (sorted(numbers(taken[2:])), 0)


def test_a_timeout_too_short_for_a_busy_machine_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="member_timeout"):
        RedisMessageBus("redis://localhost", member_timeout=timedelta(milliseconds=10))


@pytest.mark.parametrize(("partitions", "told"), [(None, True), (4, False)])
async def test_streams_that_members_share_are_said_to_have_no_order(
    redis_server: Redis, request_: SubscriptionRequest, partitions: int | None, told: bool
) -> None:
    """A consumer of the shop that was killed once got a key's events in another order, unwarned."""
    subscription = RedisMessageBus(redis_server.url, partitions=partitions).subscribe(request_)

    said = await subscription.start(ignore)
    await subscription.close()

    assert (UNORDERED in said) == told
