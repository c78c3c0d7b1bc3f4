"""A key's messages stand in their order, and a copy is harmless."""

import asyncio
from typing import Final

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.testing.contract.case import BusCase
from pillarbox.testing.messages import ids, message, new_topic
from pillarbox.testing.rig import BusRig

_CALLS: Final = 8


class OrderContract(BusCase):
    """Order within a key: in a batch, over batches, and in calls that overlap."""

    async def test_the_messages_of_a_key_are_stored_in_the_order_of_their_batch(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        batch = [message(topic, n, key="one") for n in range(200)]

        outcomes = await bus.publish(batch)

        assert outcomes == [ACCEPTED] * 200
        assert ids(await rig.read(topic)) == ids(batch)

    async def test_the_messages_of_many_keys_are_stored_in_the_order_of_their_calls(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, keys = new_topic(), [f"key-{n}" for n in range(20)]
        batches = [[message(topic, n, key=key) for key in keys] for n in range(_CALLS)]

        outcomes = [await bus.publish(batch) for batch in batches]

        assert outcomes == [[ACCEPTED] * len(keys)] * _CALLS
        stored = ids(await rig.read(topic))
        places = {event_id: place for place, event_id in enumerate(stored)}
        for lane in zip(*batches, strict=True):
            found = [places[sent.event_id] for sent in lane]
            assert found == sorted(found)

    async def test_calls_that_overlap_all_arrive(self, rig: BusRig, bus: MessageBus) -> None:
        topic = new_topic()
        batches = [[message(topic, n) for n in range(100)] for _ in range(_CALLS)]

        outcomes = await asyncio.gather(*(bus.publish(batch) for batch in batches))

        assert outcomes == [[ACCEPTED] * 100] * _CALLS
        stored = ids(await rig.read(topic))
        assert sorted(stored) == sorted(sent.event_id for batch in batches for sent in batch)

    async def test_a_key_keeps_its_order_over_calls_that_overlap_if_the_bus_says_so(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        batches = [[message(topic, n, key="one") for n in range(50)] for _ in range(_CALLS)]

        outcomes = await asyncio.gather(*(bus.publish(batch) for batch in batches))

        assert outcomes == [[ACCEPTED] * 50] * _CALLS
        stored = ids(await rig.read(topic))
        sent = [sent.event_id for batch in batches for sent in batch]
        if bus.capabilities.pipelines_keys:
            assert stored == sent
        else:
            assert sorted(stored) == sorted(sent)

    async def test_one_by_one_keeps_the_order(self, rig: BusRig, bus: MessageBus) -> None:
        topic = new_topic()
        batch = [message(topic, n, key="one") for n in range(20)]

        outcomes = await bus.publish(batch, one_by_one=True)

        assert outcomes == [ACCEPTED] * 20
        assert ids(await rig.read(topic)) == ids(batch)

    async def test_a_repeated_message_is_harmless_and_removed_if_the_bus_says_so(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic, other = new_topic(), rig.bus()
        again = message(topic)

        outcomes = [
            *await bus.publish([again]),
            *await bus.publish([again]),
            *await other.publish([again]),
        ]
        await other.close()

        assert outcomes == [ACCEPTED] * 3
        stored = ids(await rig.read(topic))
        assert set(stored) == {again.event_id}
        if bus.capabilities.deduplicates:
            assert len(stored) == 1

    async def test_the_id_of_one_tenant_does_not_hide_that_of_another(
        self, rig: BusRig, bus: MessageBus
    ) -> None:
        topic = new_topic()
        one = message(topic)

        outcomes = [
            *await bus.publish([one]),
            *await bus.publish([one._replace(tenant_id="other")]),
        ]

        assert outcomes == [ACCEPTED] * 2
        stored = await rig.read(topic)
        assert sorted(found.headers["tenant_id"] for found in stored) == ["default", "other"]
