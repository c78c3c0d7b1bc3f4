"""The life of a member: cancelled calls, close, and a broker that nobody reaches."""

import asyncio
import time
from typing import Final

import pytest

from pillarbox.bus.subscription import Delivery, SubscriptionRequest
from pillarbox.errors import BusUnreachable
from pillarbox.testing.subscription.case import (
    Group,
    Member,
    SubscriptionCase,
    new_request,
    numbers,
)
from pillarbox.testing.subscription.powers import nobody_there
from pillarbox.testing.subscription.rig import SubscriptionRig

_SILENCE: Final = 10.0
_TURNS: Final = 40


class LifeContract(SubscriptionCase):
    """What may be cancelled, repeated and closed."""

    async def test_silence_is_no_error(self, group: Group) -> None:
        member = await group.join()

        async with asyncio.timeout(_SILENCE):
            came = await member.subscription.receive(10)

        assert list(came) == []

    async def test_a_cancelled_call_loses_nothing(self, group: Group) -> None:
        member = await group.join()
        publishing = asyncio.create_task(publish_singly(group, _TURNS))
        had: list[Delivery] = []

        for turn in range(_TURNS):
            call = asyncio.create_task(member.subscription.receive(10))
            for _ in range(turn):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            if not call.cancelled():
                had += call.result()
        await publishing
        had += await member.take(_TURNS - len(had))

        assert numbers(had) == list(range(_TURNS))

    async def test_closing_ends_a_call_that_waits(self, group: Group) -> None:
        member = await group.join()
        call = asyncio.create_task(member.subscription.receive(10))
        await asyncio.sleep(0)

        await member.subscription.close()

        async with asyncio.timeout(_SILENCE):
            assert list(await call) == []

    async def test_what_is_acknowledged_after_the_end_is_passed_over(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(5)
        taken = await member.take(5)
        await member.subscription.close()

        await member.subscription.acknowledge(taken)
        await member.subscription.give_back(taken)

        assert numbers(await (await group.join()).take(5)) == list(range(5))

    async def test_nothing_to_acknowledge_or_give_back_is_no_error(self, group: Group) -> None:
        member = await group.join()

        await member.subscription.acknowledge([])
        await member.subscription.give_back([])

    async def test_acknowledging_twice_is_harmless(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(5)
        taken = await member.take(5)

        await member.subscription.acknowledge(taken)
        await member.subscription.acknowledge(taken)
        await group.publish_numbers(5, first=5)

        assert numbers(await member.take(5)) == list(range(5, 10))

    async def test_close_is_safe_to_repeat_and_without_a_start(self, rig: SubscriptionRig) -> None:
        subscription = rig.subscription(new_request())

        await subscription.close()
        await subscription.close()

    async def test_consumers_do_not_disturb_each_other(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        other = Group(rig)
        other.request = SubscriptionRequest(f"{group.request.consumer}-too", group.request.topics)
        await rig.prepare(other.request)
        one, two = await group.join(), await other.join()
        await group.publish_numbers(20)

        await one.subscription.acknowledge(await one.take(20))
        found = await two.take(20)
        await other.close()

        assert numbers(found) == list(range(20))

    async def test_a_small_window_passes_everything(self, rig: SubscriptionRig) -> None:
        group = Group(rig)
        group.request = new_request(window=10)
        await rig.prepare(group.request)
        member = await group.join()
        await group.publish_numbers(300, keys=7)

        came = await member.take_until(lambda seen: len(seen) >= 300)
        await group.close()

        assert sorted(numbers(came)) == list(range(300))

    async def test_a_broker_that_nobody_reaches_is_said_in_time(self, rig: SubscriptionRig) -> None:
        member = Member(nobody_there(rig).unreachable(new_request()))
        begun = time.monotonic()

        with pytest.raises(BusUnreachable):
            await member.start()
        await member.subscription.close()

        assert time.monotonic() - begun < _SILENCE * 2


async def publish_singly(group: Group, count: int) -> None:
    """Publish messages one by one."""
    for number in range(count):
        await group.publish_numbers(1, first=number)
