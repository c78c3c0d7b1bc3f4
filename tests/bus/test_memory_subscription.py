"""The memory bus as a broker for consumers, with the faults that tests order."""

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Delivery, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Incoming
from pillarbox.testing import SubscriptionContract, SubscriptionRig
from pillarbox.testing.subscription.rig import RawMessage
from tests.bus.rig import message

REQUEST = SubscriptionRequest("payments", ("t",))


async def nothing(_partitions: Collection[str]) -> None:
    pass


async def joined(bus: MemoryMessageBus) -> MemorySubscription:
    member = bus.subscribe(REQUEST)
    await member.start(nothing)
    return member


def numbers(deliveries: Sequence[Delivery], key: str | None = None) -> list[int]:
    return [
        int(delivery.position)
        for delivery in deliveries
        if key is None or delivery.message.key == key
    ]


async def filled(count: int, keys: int = 5, partitions: int = 4) -> MemoryMessageBus:
    bus = MemoryMessageBus(partitions=partitions)
    await bus.publish([message("t", n, key=f"k{n % keys}") for n in range(count)])
    return bus


async def test_a_member_receives_what_was_published_in_the_order_of_each_key() -> None:
    bus = await filled(20)
    member = await joined(bus)

    received = await member.receive(100)

    assert sorted(numbers(received)) == list(range(20))
    assert all(numbers(received, f"k{n}") == list(range(n, 20, 5)) for n in range(5))
    assert not any(delivery.redelivered for delivery in received)


async def test_a_member_receives_no_more_than_it_asks_for_and_other_topics_not_at_all() -> None:
    bus = await filled(20)
    await bus.publish([message("other", 1)])
    member = await joined(bus)

    received = [await member.receive(7), await member.receive(7), await member.receive(7)]

    assert [len(batch) for batch in received] == [7, 7, 6]
    assert await member.lag() == 0


async def test_receiving_waits_for_the_next_message_and_ends_after_a_silence() -> None:
    bus = await filled(0)
    member = await joined(bus)
    receiving = asyncio.create_task(member.receive(10))
    await asyncio.sleep(0)

    await bus.publish([message("t", 1, key="k")])

    assert len(await receiving) == 1
    assert await member.receive(10) == ()


async def test_what_is_given_back_comes_again_before_what_is_later() -> None:
    bus = await filled(6, keys=1)
    member = await joined(bus)
    first = await member.receive(4)

    await member.give_back(first[1:])
    again = await member.receive(10)

    assert numbers(again) == [1, 2, 3, 4, 5]
    assert [delivery.redelivered for delivery in again] == [True, True, True, False, False]


async def test_two_members_share_the_partitions_and_each_key_has_one_of_them() -> None:
    bus = await filled(100, keys=20, partitions=8)
    one, two = await joined(bus), await joined(bus)

    first, second = await one.receive(1000), await two.receive(1000)

    keys = [{delivery.message.key for delivery in batch} for batch in (first, second)]
    assert len(one.partitions) == len(two.partitions) == 4
    assert keys[0].isdisjoint(keys[1])
    assert sorted(numbers(first) + numbers(second)) == list(range(100))


async def test_two_groups_each_receive_everything() -> None:
    bus = await filled(3)
    one = await joined(bus)
    other = bus.subscribe(SubscriptionRequest("mails", ("t",)))
    await other.start(nothing)

    assert len(await one.receive(10)) == len(await other.receive(10)) == 3


async def test_the_unfinished_of_a_member_that_leaves_go_to_another() -> None:
    bus = await filled(4, keys=1)
    one = await joined(bus)
    had = await one.receive(10)
    await one.acknowledge(had[:2])

    await one.close()
    two = await joined(bus)
    again = await two.receive(10)

    assert numbers(again) == [2, 3]
    assert all(delivery.redelivered for delivery in again)


async def test_a_partition_is_finished_with_before_it_goes() -> None:
    bus = await filled(8, keys=8, partitions=2)
    had: list[Delivery] = []
    one = bus.subscribe(REQUEST)

    async def finish(partitions: Collection[str]) -> None:
        await one.acknowledge([found for found in had if found.partition in partitions])

    await one.start(finish)
    had += await one.receive(100)
    two = await joined(bus)

    assert await two.receive(100) == ()


async def test_what_was_in_hand_of_a_lost_partition_cannot_be_acknowledged_any_more() -> None:
    bus = await filled(3, partitions=1)
    owner, heir = await joined(bus), await joined(bus)
    had = await owner.receive(10)

    await owner.lose(noticed=False)
    await owner.acknowledge(had)

    assert numbers(await heir.receive(10)) == [0, 1, 2]


async def test_a_redelivery_brings_finished_messages_again_behind_the_others() -> None:
    bus = await filled(3, keys=1)
    member = await joined(bus)
    await member.acknowledge(await member.receive(10))

    bus.redeliver()
    await bus.publish([message("t", 3, key="k0")])
    again = await member.receive(10)

    assert numbers(again) == [0, 1, 2, 3]
    assert [delivery.redelivered for delivery in again] == [True, True, True, False]


@pytest.mark.parametrize("seed", range(5))
async def test_a_shuffle_keeps_each_keys_own_order(seed: int) -> None:
    bus = await filled(60, keys=6, partitions=1)
    member = await joined(bus)

    bus.shuffle(random.Random(seed))
    received = await member.receive(100)

    assert numbers(received) != list(range(60))
    assert all(numbers(received, f"k{n}") == list(range(n, 60, 6)) for n in range(6))


async def test_a_foreign_message_comes_as_it_is() -> None:
    odd = Incoming("t", None, {}, b"\xff", "image/png", "7")
    bus = MemoryMessageBus()
    member = await joined(bus)

    bus.put(odd)

    assert [delivery.message for delivery in await member.receive(10)] == [odd]


@dataclass(slots=True)
class MemorySubscriptionRig:
    name: str = "memory"
    bus: MemoryMessageBus = field(default_factory=MemoryMessageBus)

    def subscription(self, request: SubscriptionRequest) -> MemorySubscription:
        return self.bus.subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        self.bus.subscribe(request)

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await self.bus.publish(messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        for raw in messages:
            headers = {name: text(value) for name, value in raw.headers.items()}
            self.bus.put(Incoming(topic, text(raw.key), headers, raw.body), partition=0)


def text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode(errors="backslashreplace")


class TestTheContract(SubscriptionContract):
    @pytest.fixture
    def rig(self) -> SubscriptionRig:
        return MemorySubscriptionRig()
