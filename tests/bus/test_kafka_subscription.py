"""What only Kafka's subscription does."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.kafka.login import Login
from pillarbox.bus.kafka.subscription import KafkaSubscription
from pillarbox.bus.kafka.subscription_poller import BATCH, Poller
from pillarbox.bus.kafka.subscription_settings import consumer_settings
from pillarbox.bus.subscription import nothing_waits
from pillarbox.errors import InvalidConfig
from pillarbox.servers import Kafka
from pillarbox.testing import message
from pillarbox.testing.subscription.case import PATIENCE, Group, Member, new_request, numbers
from tests.bus.subscription_rig_kafka import SESSION, KafkaSubscriptionRig
from tests.support.kafka_admin import make_topic
from tests.support.waiting import until

MILLISECONDS = int(SESSION.total_seconds() * 1000)


@pytest.fixture
async def group(kafka_server: Kafka) -> AsyncIterator[Group]:
    async with group_on(kafka_server) as made:
        yield made


@asynccontextmanager
async def group_on(server: Kafka) -> AsyncIterator[Group]:
    rig = KafkaSubscriptionRig(server)
    made = Group(rig)
    await rig.prepare(made.request)
    yield made
    await made.close()


def kafka(server: Kafka, **settings: int) -> KafkaMessageBus:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaMessageBus(server.bootstrap, settings=named)


def subscription_of(member: Member) -> KafkaSubscription:
    assert isinstance(member.subscription, KafkaSubscription)
    return member.subscription


def poller_of(member: Member) -> Poller:
    poller = subscription_of(member)._poller
    assert poller is not None
    return poller


async def set_topic(server: Kafka, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    await asyncio.to_thread(make_topic, server.bootstrap, topic, config=named)


async def test_a_zombie_is_told_that_its_partitions_are_gone_and_commits_nothing(
    kafka_server: Kafka, group: Group
) -> None:
    bus = kafka(kafka_server, session_timeout_ms=MILLISECONDS, max_poll_interval_ms=MILLISECONDS)
    zombie = await group.join(bus.subscribe(group.request))
    await group.publish_numbers(20)
    held = await zombie.take(20)
    frozen, free = threading.Event(), threading.Event()

    def freeze(_: Any) -> None:
        frozen.set()
        free.wait(60)

    poller_of(zombie).run(freeze)
    heir = await group.join()
    came = await heir.take(20)
    free.set()
    await until(lambda: told(zombie, held[0].partition), "the zombie is told", limit=30)
    await zombie.subscription.acknowledge(held)
    await zombie.subscription.give_back(held)
    await zombie.subscription.close()
    await heir.subscription.close()

    assert frozen.is_set()
    assert numbers(came) == list(range(20))
    assert numbers(await (await group.join()).take(20)) == list(range(20))


async def told(member: Member, partition: str) -> bool:
    return partition in member.let_go


async def test_whoever_does_not_receive_has_a_bounded_number_of_messages(group: Group) -> None:
    member = await group.join()
    await group.publish_numbers(6_000, keys=60)
    arrivals = subscription_of(member)._arrivals

    async def full() -> bool:
        return len(arrivals) >= group.request.window

    await until(full, "messages wait", limit=30)
    most = len(arrivals)
    taken = await member.take(6_000)

    assert most <= group.request.window + 2 * BATCH
    assert sorted(numbers(taken)) == list(range(6_000))


async def test_a_partition_does_not_run_far_ahead_of_its_committed_position(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.bus.kafka.subscription.FURTHEST", 100)
    member = await group.join()
    await group.publish_numbers(5_000)

    ahead = await member.take_rest()
    await member.subscription.acknowledge(ahead)
    rest = await member.take_until(lambda seen: len(ahead) + len(seen) >= 5_000)

    assert len(ahead) < 5_000
    assert numbers([*ahead, *rest]) == list(range(5_000))


async def test_only_what_waited_before_may_have_been_begun(group: Group) -> None:
    await group.publish_numbers(5)
    member = await group.join()
    waited = await member.take(5)
    await group.publish_numbers(5, first=5)
    new = await member.take(5)

    assert all(delivery.redelivered for delivery in waited)
    assert not any(delivery.redelivered for delivery in new)


async def test_a_partition_that_went_back_does_not_keep_its_position_back(group: Group) -> None:
    """As after a topic was made anew, or a log cut off, while a message was in hand."""
    member = await group.join()
    await group.publish_numbers(5)
    first = await member.take(5)
    await member.subscription.acknowledge(first[:4])
    [(topic, number)] = {delivery.token[0].place for delivery in first}
    poller_of(member).run(lambda consumer: consumer.seek(TopicPartition(topic, number, 0)))

    again = await member.take(5)
    await member.subscription.acknowledge([*again, first[4]])
    await member.subscription.close()
    await group.publish_numbers(1, first=5)
    heir = await group.join()

    assert numbers(again) == numbers(first)
    assert all(delivery.redelivered for delivery in again)
    assert numbers(await heir.take(1)) == [5]


async def test_weak_topics_are_named_and_the_longest_redelivery_is_known(
    kafka_server: Kafka, group: Group
) -> None:
    hour = str(60 * 60 * 1000)
    short, compacted = f"{group.topic}.short", f"{group.topic}.compacted"
    await set_topic(kafka_server, short, retention_ms=hour)
    await set_topic(kafka_server, compacted, cleanup_policy="compact")
    bus = kafka(kafka_server)
    one = Member(bus.subscribe(group.request.__class__("one", (short,))))
    both = Member(bus.subscribe(group.request.__class__("both", (short, compacted))))

    said = [await one.start(), await both.start()]
    receptions = [one.subscription.reception, both.subscription.reception]
    await one.subscription.close()
    await both.subscription.close()
    await bus.close()

    assert f"topic {short} keeps messages for 1:00:00" in said[0][0]
    assert any(f"topic {compacted} is compacted" in sentence for sentence in said[1])
    assert receptions[0].longest_redelivery == timedelta(hours=1)
    assert receptions[1].longest_redelivery is None


async def test_a_missing_topic_is_named_and_read_once_it_is_there(
    kafka_server: Kafka, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = f"{group.topic}.late"
    bus = kafka(kafka_server, topic_metadata_refresh_interval_ms=500)
    monkeypatch.setattr(bus, "_makes_topics", False)
    member = Member(bus.subscribe(group.request.__class__("late", (late,))))

    said = await member.start()
    await bus.apply([late])
    await group.publish([message(late, 7)])
    taken = await member.take(1)
    await member.subscription.close()
    await bus.close()

    assert any(f"there is no topic {late}" in sentence for sentence in said)
    assert numbers(taken) == [7]


async def test_an_error_of_the_thread_is_raised_where_messages_are_received(group: Group) -> None:
    member = await group.join()

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    poller_of(member).run(fail)

    with pytest.raises(ZeroDivisionError):
        await member.take(1)


def publish_in_a_transaction(server: Kafka, topic: str) -> None:
    settings: Any = {"bootstrap.servers": server.bootstrap, "transactional.id": topic}
    producer: Any = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"{}", key=b"k")
    producer.commit_transaction(20)


async def test_the_mark_of_a_transaction_does_not_wait_for_anybody(
    kafka_server: Kafka, group: Group
) -> None:
    """It lies behind the last message, and a rebuild once waited for it in vain."""
    await asyncio.to_thread(publish_in_a_transaction, kafka_server, group.topic)
    member = await group.join()
    await member.subscription.acknowledge(await member.take(1))

    await until(lambda: nothing_waits(member.subscription), "the end is known")

    assert await member.subscription.lag() == 0


async def test_a_member_is_not_at_the_end_while_another_has_partitions_to_read(
    group: Group,
) -> None:
    first = await group.join()
    await group.publish_numbers(30, keys=30)
    taken = await first.take(30)
    second = await group.join()

    async def is_shared() -> bool:
        await first.subscription.receive(1)
        await second.subscription.receive(1)
        return bool(first.let_go) and bool(subscription_of(second)._shares)

    await until(is_shared, "the second has partitions", PATIENCE)
    kept = [found for found in taken if found.partition not in first.let_go]
    await first.subscription.acknowledge(kept)

    assert await first.subscription.lag() == 0
    assert not await nothing_waits(first.subscription)


async def test_what_waits_is_unknown_once_the_thread_has_ended(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.bus.kafka.subscription_poller._ANSWER_BY", 0.1)
    member = await group.join()
    poller = poller_of(member)
    await poller.stop(30)

    assert await poller.ask(lambda _: 1) is None
    assert await member.subscription.lag() is None


@pytest.mark.parametrize("name", ["group.id", "enable.auto.commit", "auto.offset.reset"])
def test_settings_that_the_promise_rests_on_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        KafkaMessageBus("localhost:9092", settings={name: "x"})


def test_a_member_has_the_settings_of_security_and_none_of_a_producer() -> None:
    made = consumer_settings(
        {"security.protocol": "ssl", "linger.ms": 5, "session.timeout.ms": 7_000}, "payments"
    )

    assert made["security.protocol"] == "ssl"
    assert made["session.timeout.ms"] == 7_000
    assert made["group.id"] == "payments"
    assert made["enable.auto.commit"] is False
    assert "linger.ms" not in made


class HeldClient:
    """A consumer of two partitions that notes what it is told, and gives nothing."""

    def __init__(self, room: threading.Event) -> None:
        self._room, self.paused = room, set[int]()

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0), TopicPartition("orders", 1)]

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {place.partition for place in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {place.partition for place in places}

    def poll(self, _: float) -> None:
        self._room.set()


async def test_a_partition_that_was_halted_stays_so_when_there_is_room_again(
    kafka_server: Kafka,
) -> None:
    subscription = kafka(kafka_server).subscribe(new_request())
    assert isinstance(subscription, KafkaSubscription)
    settings = {"bootstrap.servers": kafka_server.bootstrap, "group.id": "held"}
    poller = Poller(settings, ["orders"], Login(None), subscription)
    client = poller._consumer = HeldClient(poller._room)
    poller.halt({("orders", 1)})
    poller._run_errands()

    poller.want(more=False)
    poller._hold_still()
    halted = set(client.paused)
    poller.let_on({("orders", 1)})
    poller._run_errands()

    assert halted == {1}
    assert client.paused == set()


class LateClient(HeldClient):
    """A client to which a message comes at the very moment at which its member is stopped."""

    def __init__(self, poller: Poller) -> None:
        super().__init__(poller._room)
        self._poller, self._loop, self.asked = poller, asyncio.get_running_loop(), 0

    def poll(self, _: float) -> Any:
        self.asked += 1
        assert self.asked == 1, "it is asked again after the stop"
        asyncio.run_coroutine_threadsafe(self._poller.stop(0), self._loop).result()
        return Message("orders", 0, 7, b"late")


async def test_a_message_that_comes_while_a_full_member_is_stopped_does_not_hold_it_up(
    kafka_server: Kafka,
) -> None:
    """It took away the room that the stop had made, and nobody was left to make more."""
    settings = {"bootstrap.servers": kafka_server.bootstrap, "group.id": "late"}
    told: Any = SimpleNamespace(arrived=lambda *_: None)
    poller = Poller(settings, ["orders"], Login(None), told)
    client = poller._consumer = LateClient(poller)

    poller.want(more=False)
    await asyncio.to_thread(poller._hold_still)

    assert client.asked == 1
    assert client.paused == set()
