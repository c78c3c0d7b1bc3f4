"""What only the subscription of NATS does."""

import os
import signal
from collections.abc import AsyncIterator, Collection
from datetime import timedelta

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.nats.subscription_durables import durable_name
from pillarbox.bus.subscription import Delivery, SubscriptionRequest
from pillarbox.errors import InvalidConfig
from pillarbox.servers import Login, Nats
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import message, new_topic
from pillarbox.testing.subscription.case import Group, Member, numbers
from tests.bus.subscription_rig_nats import ACK_WAIT, NatsSubscriptionRig
from tests.support.faultproxy import CLIENT, Cut, Drop, FaultProxy
from tests.support.waiting import until

# A member that stands still for a third of it, as on a busy machine, loses its pin to another one.
UNHURRIED = timedelta(seconds=30)


@pytest.fixture
async def group(nats_server: Nats) -> AsyncIterator[Group]:
    """A consumer of a topic without partitions."""
    made = Group(NatsSubscriptionRig(nats_server, partitions=None))
    yield made
    await made.close()


@pytest.fixture
async def unhurried(nats_server: Nats) -> AsyncIterator[Group]:
    """A consumer of a topic without partitions, whose active member may be slow."""
    made = Group(unhurried_rig(nats_server))
    yield made
    await made.close()


def unhurried_rig(server: Nats) -> NatsSubscriptionRig:
    return NatsSubscriptionRig(server, partitions=None, ack_wait=UNHURRIED)


async def test_a_topic_without_partitions_has_one_active_member_and_a_stand_in(
    unhurried: Group,
) -> None:
    group = unhurried
    members = [await group.join(), await group.join()]
    had: list[list[Delivery]] = [[], []]

    async def all_came() -> bool:
        for member, seen in zip(members, had, strict=True):
            seen.extend(await member.subscription.receive(10))
        return sum(map(len, had)) >= 10

    await group.publish_numbers(10)
    await until(all_came, "they have come")
    for member, seen in zip(members, had, strict=True):
        seen.extend(await member.take_rest())
    active, other = members if had[0] else members[::-1]
    await active.subscription.acknowledge([*had[0], *had[1]][:5])

    await active.subscription.close()
    left = await other.take(5)

    assert sorted(numbers(deliveries) for deliveries in had) == [[], list(range(10))]
    assert numbers(left) == list(range(5, 10))


async def test_members_share_the_partitions_out(nats_server: Nats) -> None:
    rig = NatsSubscriptionRig(nats_server, partitions=16)
    group = Group(rig)
    members = [await group.join() for _ in range(3)]
    seen: list[set[str]] = [set() for _ in members]
    published = 0

    async def all_have_some() -> bool:
        nonlocal published
        await group.publish_numbers(64, first=published, keys=64)
        published += 64
        for member, partitions in zip(members, seen, strict=True):
            came = await member.subscription.receive(1_000)
            await member.subscription.acknowledge(came)
            partitions.update(delivery.partition for delivery in came)
        return all(seen)

    await until(all_have_some, "every member has partitions", limit=30)
    await group.close()


async def test_a_consumer_that_fails_to_let_a_partition_go_hears_of_it(nats_server: Nats) -> None:
    """The error died with a task that nobody awaited."""
    group = Group(NatsSubscriptionRig(nats_server, partitions=16))

    async def fail(partitions: Collection[str]) -> None:
        raise ValueError(f"cannot finish with {len(partitions)}")

    async def has_raised() -> bool:
        try:
            await member.subscription.receive(10)
        except ValueError:
            return True
        return False

    member = await group.join()
    member.before_letting_go = fail
    await group.join()

    await until(has_raised, "it is raised where messages are received")
    await group.close()


async def test_messages_lost_on_the_way_come_before_later_ones(nats_server: Nats) -> None:
    group = Group(NatsSubscriptionRig(nats_server, partitions=None))
    async with FaultProxy(LOOPBACK, nats_server.port) as proxy:
        bus = NatsMessageBus(f"nats://{proxy.host}:{proxy.port}", ack_wait=ACK_WAIT)
        member = await group.join(bus.subscribe(group.request))
        await group.publish_numbers(5)
        first = await member.take(5)
        await member.subscription.acknowledge(first)

        proxy.now(Drop(CLIENT))
        await group.publish_numbers(5, first=5)
        await until(lambda: delivered(nats_server, group, 10), "they were sent and lost")
        proxy.now(Cut())
        await group.publish_numbers(5, first=10)
        came = await member.take(10)
        await group.close()

    assert numbers(came) == list(range(5, 15))
    assert [delivery.redelivered for delivery in came] == [True] * 5 + [False] * 5


async def test_a_durable_that_is_deleted_under_an_idle_member_is_made_again(
    nats_server: Nats,
) -> None:
    """Its pulls were refused for ever, in silence."""
    rig = NatsSubscriptionRig(nats_server)
    group = Group(rig)
    member = await group.join()
    await group.publish_numbers(6, keys=6)
    await member.subscription.acknowledge(await member.take(6))

    await rig.rewind(group.request)
    await group.publish_numbers(6, first=6, keys=6)
    came = await member.take(12)
    await group.close()

    assert sorted(numbers(came)) == list(range(12))


async def test_what_is_in_hand_when_its_durable_is_deleted_comes_again_in_order(
    nats_server: Nats,
) -> None:
    rig = unhurried_rig(nats_server)
    group = Group(rig)
    member = await group.join()
    await group.publish_numbers(5)
    had = await member.take(5)
    await member.subscription.acknowledge(had[:2])

    await rig.rewind(group.request)
    came = await member.take(5)
    await group.publish_numbers(3, first=5)
    later = await member.take(3)
    await group.close()

    assert numbers(came) == list(range(5))
    assert numbers(later) == [5, 6, 7]
    assert set(member.let_go) == {group.topic}


async def test_a_deleted_durable_is_made_again_for_one_active_member(nats_server: Nats) -> None:
    rig = unhurried_rig(nats_server)
    group = Group(rig)
    members = [await group.join(), await group.join()]
    came: list[list[int]] = [[], []]

    async def all_came() -> bool:
        for member, seen in zip(members, came, strict=True):
            deliveries = await member.subscription.receive(10)
            seen.extend(numbers(deliveries))
            await member.subscription.acknowledge(deliveries)
        return sum(map(len, came)) >= 5

    await group.publish_numbers(5)
    await until(all_came, "they have come")
    for seen in came:
        seen.clear()
    await rig.rewind(group.request)
    await until(all_came, "they have come again")
    await group.close()

    assert sorted(came) == [[], list(range(5))]


async def test_a_stream_that_is_deleted_is_made_again_on_this_machine(
    nats_server: Nats, group: Group
) -> None:
    member = await group.join()
    await group.publish_numbers(1)
    await member.subscription.acknowledge(await member.take(1))

    await delete_stream(nats_server, group)
    await until(lambda: delivered(nats_server, group, 0), "it is there again, and its durable")
    await group.publish_numbers(1, first=1)
    came = await member.take(1)

    assert numbers(came) == [1]


async def test_a_stream_that_is_deleted_on_another_machine_is_told_where_messages_are_received(
    nats_server: Nats, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    await group.publish_numbers(1)
    bus = NatsMessageBus(nats_server.url, ack_wait=ACK_WAIT)
    monkeypatch.setattr(bus, "_makes_streams", False)
    member = await group.join(bus.subscribe(group.request))
    await member.subscription.acknowledge(await member.take(1))

    await delete_stream(nats_server, group)

    with pytest.raises(InvalidConfig, match="stream not found"):
        await member.take(1)


async def delete_stream(server: Nats, group: Group) -> None:
    client = await nats.connect(server.url)
    await client.jsm().delete_stream(group.topic.partition(".")[0])
    await client.close()


async def delivered(server: Nats, group: Group, count: int) -> bool:
    client = await nats.connect(server.url)
    try:
        stream = group.topic.partition(".")[0]
        name = durable_name(group.request.consumer, group.topic)
        info = await client.jsm().consumer_info(stream, name)
        assert info.delivered is not None
        return int(info.delivered.consumer_seq) >= count
    except NotFoundError:
        return False
    finally:
        await client.close()


async def test_weak_streams_are_named_and_the_longest_redelivery_is_known(
    nats_server: Nats,
) -> None:
    topic = new_topic()
    word = topic.partition(".")[0]
    client = await nats.connect(nats_server.url)
    config = StreamConfig(name=word, subjects=[f"{word}.>"], max_age=3600, max_msgs=1000)
    await client.jetstream().add_stream(config)
    await client.close()
    member = Member(NatsMessageBus(nats_server.url).subscribe(SubscriptionRequest("w", (topic,))))

    said = await member.start()
    reception = member.subscription.reception
    await member.subscription.close()

    assert f"stream {word} keeps messages for 1:00:00" in said[0]
    assert "discards old messages" in said[1]
    assert reception.longest_redelivery == timedelta(hours=1)
    assert reception.orders_keys


async def test_a_topic_that_no_stream_keeps_is_refused(
    nats_server: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, bus = new_topic(), NatsMessageBus(nats_server.url)
    monkeypatch.setattr(bus, "_makes_streams", False)
    member = Member(bus.subscribe(SubscriptionRequest("nobody", (topic,))))

    with pytest.raises(InvalidConfig, match="no stream keeps"):
        await member.start()
    await member.subscription.close()


async def test_a_consumer_of_another_kind_with_our_name_is_refused(
    nats_server: Nats, group: Group
) -> None:
    await group.publish_numbers(1)
    client = await nats.connect(nats_server.url)
    name = durable_name(group.request.consumer, group.topic)
    config = ConsumerConfig(
        durable_name=name, filter_subject=group.topic, deliver_subject="somewhere.else"
    )
    await client.jsm().add_consumer(group.topic.partition(".")[0], config)
    await client.close()

    with pytest.raises(InvalidConfig, match=name):
        await group.join()


async def test_an_old_server_gives_no_order_and_the_flag_says_so(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("subscription", "subscription_durables"):
        monkeypatch.setattr(f"pillarbox.bus.nats.{module}.knows_pins", lambda _: False)
    bus = NatsMessageBus(group._rig.server.url, ack_wait=ACK_WAIT)  # type: ignore[attr-defined] # ours
    member = Member(bus.subscribe(group.request))

    said = await member.start()
    await group.publish_numbers(10)
    came = await member.take(10)
    await member.subscription.close()

    assert "older than 2.11" in said[-1]
    assert not member.subscription.reception.orders_keys
    assert sorted(numbers(came)) == list(range(10))


async def test_a_member_that_is_thrown_out_comes_back_with_the_new_password() -> None:
    """NATS ends connections whose password has changed, and its client gives up for good then."""
    login = Login("alice", "first-s3cret")
    topic = new_topic()
    with Nats(login=login) as server:
        bus = NatsMessageBus(
            server.url,
            ack_wait=ACK_WAIT,
            options={"user": lambda: login.user, "password": lambda: login.password},
        )
        member = Member(bus.subscribe(SubscriptionRequest("payments", (topic,))))
        await member.start()
        await bus.publish([message(topic, 1)])
        taken = await member.take(1)

        login = Login("alice", "second-s3cret")
        server.change_login(login)
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: published(bus, topic), "messages are accepted again", limit=60)
        again = await member.take_until(lambda seen: 2 in numbers(seen))
        await member.subscription.close()
        await bus.close()

    assert {*numbers(taken), *numbers(again)} == {1, 2}


async def published(bus: NatsMessageBus, topic: str) -> bool:
    [outcome] = await bus.publish([message(topic, 2)])
    return type(outcome).__name__ == "Accepted"
