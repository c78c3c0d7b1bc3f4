"""Brokers that die or freeze: a member waits for them and goes on by itself."""

import asyncio

from pillarbox.testing.subscription.case import Group, SubscriptionCase, numbers
from pillarbox.testing.subscription.powers import stopping
from pillarbox.testing.subscription.rig import SubscriptionRig


class SubscriptionOutageContract(SubscriptionCase):
    """Hold a subscription to the contract while its broker is killed, frozen and restarted.

    Subclass it as `SubscriptionContract`, with a rig that is a `StopsBroker` and has a broker of its
    own.
    """

    async def test_a_killed_broker_is_waited_for_and_nothing_is_lost(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        broker, member = stopping(rig), await group.join()
        await group.publish_numbers(30)
        taken = await member.take(20)
        await member.subscription.acknowledge(taken[:10])

        await broker.kill()
        silent = await member.subscription.receive(100)
        await member.subscription.acknowledge(taken[10:15])
        await broker.restart()
        await group.publish_numbers(10, first=30)
        came = await member.take_until(lambda seen: {*range(30, 40)} <= set(numbers(seen)))

        had = {*numbers(taken), *numbers(silent), *numbers(came)}
        assert had == set(range(40))

    async def test_what_was_not_acknowledged_comes_again_after_the_broker_died(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        broker, member = stopping(rig), await group.join()
        await group.publish_numbers(20)
        taken = await member.take(20)
        await member.subscription.acknowledge(taken[:10])

        await broker.kill()
        await broker.restart()
        await member.subscription.close()
        again = await (await group.join()).take_until(
            lambda seen: {*range(10, 20)} <= set(numbers(seen))
        )

        assert numbers(again)[-10:] == list(range(10, 20))

    async def test_a_frozen_broker_is_waited_for(self, rig: SubscriptionRig, group: Group) -> None:
        broker, member = stopping(rig), await group.join()
        await group.publish_numbers(20)
        taken = await member.take(10)

        await broker.freeze()
        try:
            silent = [
                *await member.subscription.receive(100),
                *await member.subscription.receive(100),
            ]
            await member.subscription.acknowledge(taken)
        finally:
            await broker.thaw()
        await group.publish_numbers(10, first=20)
        had = {*numbers(taken), *numbers(silent)}
        came = await member.take_until(lambda seen: {*range(30)} <= had | {*numbers(seen)})

        assert {*numbers(came)} | had == set(range(30))

    async def test_a_member_of_a_broker_that_is_away_can_leave(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        broker, member = stopping(rig), await group.join()
        await group.publish_numbers(10)
        await member.take(5)

        await broker.freeze()
        try:
            async with asyncio.timeout(30):
                await member.subscription.close()
        finally:
            await broker.thaw()
        came = await (await group.join()).take_until(lambda seen: len(seen) >= 10)

        assert numbers(came)[:10] == list(range(10))
