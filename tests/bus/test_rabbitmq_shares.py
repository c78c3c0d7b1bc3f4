"""How the members of a RabbitMQ consumer part its partitions between them."""

from collections import deque
from collections.abc import Sequence
from random import Random
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.bus.rabbitmq.subscription import Share
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.servers import RabbitMq
from pillarbox.testing import SubscriptionRig, message, new_topic
from pillarbox.testing.subscription.case import Member
from tests.bus.subscription_rig_rabbitmq import (
    RabbitMqSubscriptionRig,
)
from tests.support.waiting import until


@pytest.fixture
def request_() -> SubscriptionRequest:
    return SubscriptionRequest(f"c{uuid4().hex}", (new_topic(),))


@pytest.mark.parametrize(
    ("active", "members", "goes"),
    [("abcd", 1, ""), ("abcd", 2, "cd"), ("abcd", 3, "cd"), ("ab", 2, ""), ("abcd", 0, "")],
)
def test_a_member_lets_go_what_is_beyond_its_share(
    active: Sequence[str], members: int, goes: Sequence[str]
) -> None:
    assert Share.of(4, members).surplus(active, anybody_short=False) == [*goes]


@pytest.mark.parametrize(
    ("active", "members", "goes"),
    [("ab", 3, "b"), ("a", 3, ""), ("abc", 3, "c"), ("ab", 2, ""), ("abcd", 2, "cd")],
)
def test_while_another_has_less_than_its_share_a_member_keeps_the_least(
    active: Sequence[str], members: int, goes: Sequence[str]
) -> None:
    assert Share.of(4, members).surplus(active, anybody_short=True) == [*goes]


@settings(max_examples=200)
@given(st.integers(1, 24), st.integers(1, 9), st.randoms(use_true_random=False))
def test_members_end_with_shares_that_differ_by_one_at_most(
    queues: int, members: int, chance: Random
) -> None:
    """Play it: who lets go of a queue comes again as the last in its row."""
    share = Share.of(queues, members)
    rows = {f"q{n}": deque(chance.sample(range(members), members)) for n in range(queues)}
    for _ in range(queues * members):
        held = [[queue for queue, row in rows.items() if row[0] == m] for m in range(members)]
        short = any(len(mine) < share.least for mine in held)
        gone = [q for mine in held for q in share.surplus(mine, anybody_short=short)]
        if not gone:
            break
        for queue in gone:
            rows[queue].rotate(-1)

    assert {len(mine) for mine in held} <= {share.least, share.most}


async def test_a_member_that_comes_later_gets_its_share_of_the_partitions(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest
) -> None:
    rig, [topic] = RabbitMqSubscriptionRig(rabbitmq_server), request_.topics
    first, second = (Member(rig.subscription(request_)) for _ in range(2))
    await first.start()
    await rig.publish([message(topic, n, key=f"key-{n}") for n in range(40)])
    await first.subscription.acknowledge(await first.take(40))
    await second.start()

    async def two_let_go() -> bool:
        return len(first.let_go) == 2

    await until(two_let_go, "the first member lets go two of four partitions")
    await rig.publish([message(topic, n, key=f"key-{n}") for n in range(40)])
    parts = [{found.partition for found in await m.take_rest()} for m in (first, second)]
    for member in (first, second):
        await member.subscription.close()

    assert [len(part) for part in parts] == [2, 2]
    assert parts[1] == {*first.let_go}


async def partitions_with_messages(
    rig: SubscriptionRig, topic: str, members: Sequence[Member]
) -> list[set[str]]:
    """Publish to every partition; return which of them each member was given."""
    await rig.publish([message(topic, n, key=f"key-{n}") for n in range(40)])
    held = []
    for member in members:
        came = await member.subscription.receive(1_000)
        held.append({found.partition for found in came})
        await member.subscription.acknowledge(came)
    return held


async def test_three_members_part_four_partitions_between_them(
    rabbitmq_server: RabbitMq, request_: SubscriptionRequest
) -> None:
    rig, [topic] = RabbitMqSubscriptionRig(rabbitmq_server), request_.topics
    members = [Member(rig.subscription(request_)) for _ in range(3)]

    async def parted() -> bool:
        held = await partitions_with_messages(rig, topic, members)
        return sorted(map(len, held)) == [1, 1, 2] and len(set.union(*held)) == 4

    for member in members:
        await member.start()
    await until(parted, "each of three members has its share of four partitions", 60)
    for member in members:
        await member.subscription.close()


async def test_a_busy_topic_is_shared_whatever_else_is_silent(rabbitmq_server: RabbitMq) -> None:
    busy, silent = new_topic(), new_topic()
    request = SubscriptionRequest(f"c{uuid4().hex}", (busy, silent))
    rig = RabbitMqSubscriptionRig(rabbitmq_server)
    members = [Member(rig.subscription(request)) for _ in range(2)]

    async def shared() -> bool:
        one, other = await partitions_with_messages(rig, busy, members)
        return (len(one), len(other)) == (2, 2) and not one & other

    for member in members:
        await member.start()
    await until(shared, "both members have two partitions of the busy topic", 60)
    for member in members:
        await member.subscription.close()
