"""Order, acknowledgements, and what is given back."""

from pillarbox.testing.subscription.case import (
    Group,
    SubscriptionCase,
    by_key,
    first_times,
    numbers,
)
from pillarbox.testing.subscription.powers import rewinding
from pillarbox.testing.subscription.rig import SubscriptionRig


class OrderContract(SubscriptionCase):
    """What one member is given, and what comes again."""

    async def test_the_messages_of_a_key_come_in_their_order(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(200, keys=5)

        taken = numbers(await member.take(200))

        assert sorted(taken) == list(range(200))
        assert by_key(taken, 5) == [list(range(key, 200, 5)) for key in range(5)]

    async def test_the_messages_of_a_partition_come_in_the_order_of_their_calls(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(30)

        taken = [delivery for _ in range(10) for delivery in await member.take(3, most=3)]

        assert numbers(taken) == list(range(30))
        assert len({delivery.partition for delivery in taken}) == 1
        positions = {delivery.position for delivery in taken}
        assert positions == {""} or len(positions) == 30

    async def test_no_more_come_than_were_asked_for(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(50)

        counts: list[int] = []
        while sum(counts) < 50:
            counts.append(len(await member.subscription.receive(7)))

        assert max(counts) <= 7

    async def test_what_was_published_before_the_first_member_came_is_delivered(
        self, group: Group
    ) -> None:
        await group.publish_numbers(10)

        member = await group.join()

        assert numbers(await member.take(10)) == list(range(10))

    async def test_what_was_acknowledged_does_not_come_again_and_the_rest_does(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(20)
        taken = await member.take(20)

        await member.subscription.acknowledge(taken[:10])
        await member.subscription.close()
        again = await (await group.join()).take(10)

        assert numbers(again) == list(range(10, 20))
        assert all(delivery.redelivered for delivery in again)

    async def test_all_that_was_acknowledged_in_any_order_does_not_come_again(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(30, keys=3)
        taken = await member.take(30)

        await member.subscription.acknowledge(taken[15:])
        await member.subscription.acknowledge(taken[14::-1])
        await member.subscription.close()
        other = await group.join()
        await group.publish_numbers(3, first=30, keys=3)

        came = await other.take(3)
        assert sorted(numbers([*came, *await other.take_rest()])) == [30, 31, 32]

    async def test_a_message_left_behind_comes_again_though_later_ones_are_done(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(10)
        taken = await member.take(10)

        await member.subscription.acknowledge([*taken[:3], *taken[4:]])
        await member.subscription.close()
        again = await (await group.join()).take(1)

        assert numbers(again) == [3]
        assert again[0].redelivered

    async def test_a_message_that_comes_again_is_the_same_at_the_same_place(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(8)
        taken = await member.take(8)
        await member.subscription.acknowledge(taken[:3])

        await member.subscription.close()
        other = await group.join()
        after_a_member = await other.take(5)
        await other.subscription.give_back(after_a_member)
        given_back = await other.take(5)

        first = [delivery[:3] for delivery in taken[3:]]
        assert [delivery[:3] for delivery in after_a_member] == first
        assert [delivery[:3] for delivery in given_back] == first

    async def test_what_is_given_back_comes_again_in_its_order(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(10)
        taken = await member.take(10)

        await member.subscription.give_back([taken[7], taken[4]])
        await member.subscription.give_back([taken[9], taken[5], taken[6], taken[8]])
        again = await member.take(6)

        assert numbers(again) == [4, 5, 6, 7, 8, 9]
        assert all(delivery.redelivered for delivery in again)

    async def test_what_is_given_back_comes_before_what_nobody_has_had(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(20)
        taken = await member.take(10)
        await member.subscription.acknowledge(taken[:5])

        await member.subscription.give_back(taken[5:])
        rest = await member.take(15)

        assert numbers(rest) == list(range(5, 20))

    async def test_what_was_given_back_can_be_acknowledged_the_second_time(
        self, group: Group
    ) -> None:
        member = await group.join()
        await group.publish_numbers(6)

        await member.subscription.give_back(await member.take(6))
        await member.subscription.acknowledge(await member.take(6))
        await member.subscription.close()
        other = await group.join()
        await group.publish_numbers(1, first=6)

        came = await other.take(1)
        assert numbers([*came, *await other.take_rest()]) == [6]

    async def test_what_waits_is_counted_if_anybody_knows(self, group: Group) -> None:
        member = await group.join()
        await group.publish_numbers(30)
        await member.take(10)

        lag = await member.subscription.lag()

        assert lag in {None, 20}

    async def test_a_consumer_that_was_put_back_gets_everything_again(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        operator, member = rewinding(rig), await group.join()
        await group.publish_numbers(20)
        await member.subscription.acknowledge(await member.take(20))
        await member.subscription.close()

        await operator.rewind(group.request)
        last = await group.join()
        again = [*await last.take(20), *await last.take_rest()]

        assert first_times(numbers(again)) == list(range(20))
