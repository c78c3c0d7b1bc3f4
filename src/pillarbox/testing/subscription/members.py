"""Several members: nothing is lost while they come and go, and a key has one at a time."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import pytest

from pillarbox.bus.subscription import Delivery
from pillarbox.testing.subscription.case import (
    PATIENCE,
    Group,
    Member,
    SubscriptionCase,
    by_key,
    first_times,
    number_of,
    numbers,
)
from pillarbox.testing.subscription.powers import cutting, hurrying
from pillarbox.testing.subscription.rig import SubscriptionRig

_KEYS: Final = 12
_ROUNDS: Final = 3


class MembersContract(SubscriptionCase):
    """What several members are given between them."""

    async def test_what_a_member_leaves_unfinished_goes_to_another(self, group: Group) -> None:
        leaving = await group.join()
        await group.publish_numbers(60, keys=_KEYS)
        taken = await leaving.take(60)
        await leaving.subscription.acknowledge(taken[:20])
        staying = await group.join()

        await leaving.subscription.close()
        left = {number_of(delivery) for delivery in taken[20:]}
        came = await staying.take_until(lambda seen: left <= set(numbers(seen)))

        again = [delivery for delivery in came if number_of(delivery) in left]
        assert all(delivery.redelivered for delivery in again)

    async def test_nothing_is_lost_while_members_come_and_go(self, group: Group) -> None:
        shared = Shared()
        await group.publish_numbers(120, keys=_KEYS)
        stays = await shared.work(await group.join())

        for turn in range(_ROUNDS):
            comes = await shared.work(await group.join())
            await group.publish_numbers(120, first=120 * (turn + 1), keys=_KEYS)
            await shared.have(range(120 * (turn + 2)))
            await comes.leave()
        await stays.leave()

        ordered = stays.member.subscription.reception.orders_keys
        if ordered:
            everything = range(120 * (_ROUNDS + 1))
            assert by_key(first_times(shared.seen), _KEYS) == by_key(everything, _KEYS)

    async def test_a_key_is_in_the_hands_of_one_member_at_a_time(self, group: Group) -> None:
        first = await group.join()
        if not first.subscription.reception.orders_keys:
            pytest.skip("this subscription does not say that it orders keys")
        gate = asyncio.Event()
        await group.publish_numbers(60, keys=_KEYS)
        held = await first.take(60)

        async def hold(_: Collection[str]) -> None:
            await gate.wait()

        first.before_letting_go = hold
        second = await group.join()
        await group.publish_numbers(60, first=60, keys=_KEYS)
        early = await second.take_rest()
        gate.set()

        # The first one holds something of every key.
        assert numbers(early) == []
        await first.subscription.acknowledge(held)
        await between_them(first, second, range(60, 120))

    async def test_a_partition_that_was_let_go_is_finished_first(self, group: Group) -> None:
        first = await group.join()
        await group.publish_numbers(60, keys=_KEYS)
        held = await first.take(60)

        async def finish(partitions: Collection[str]) -> None:
            done = [delivery for delivery in held if delivery.partition in partitions]
            await first.subscription.acknowledge(done)

        first.before_letting_go = finish
        second = await group.join()
        await group.publish_numbers(60, first=60, keys=_KEYS)
        early = await second.take_rest()

        # All that the first one had is finished, or still in its hands.
        assert not {*range(60)} & set(numbers(early))
        kept = [delivery for delivery in held if delivery.partition not in first.let_go]
        await first.subscription.acknowledge(kept)
        await second.subscription.acknowledge(early)
        had = {*numbers(early)}
        await between_them(first, second, sorted({*range(60, 120)} - had))

    async def test_what_is_given_back_while_its_partition_goes_comes_to_the_next_member(
        self, group: Group
    ) -> None:
        first = await group.join()
        await group.publish_numbers(60, keys=_KEYS)
        held = await first.take(60)

        async def give_back(partitions: Collection[str]) -> None:
            gone = [delivery for delivery in held if delivery.partition in partitions]
            await first.subscription.give_back(gone)

        first.before_letting_go = give_back
        second = await group.join()
        came, again = await asyncio.gather(second.take_rest(), first.take_rest())

        def all_came(seen: Sequence[Delivery]) -> bool:
            going = {number_of(found) for found in held if found.partition in first.let_go}
            return going <= {*numbers(came), *numbers(seen)}

        await second.take_until(all_came)  # what the first one let go of last may be under way
        assert not {found.partition for found in again} & {*first.let_go}

    async def test_whoever_does_not_ask_for_messages_stays_a_member(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        subscription, patience = hurrying(rig).hurried(group.request)
        busy = await group.join(subscription)
        if subscription.reception.hand_back_limit is not None:
            pytest.skip("this subscription says that it cannot hold messages for long")
        await group.publish_numbers(20)
        held = await busy.take(10)

        await asyncio.sleep(patience.total_seconds() * 2)  # Time itself is what is tried here.
        await busy.subscription.acknowledge(held)
        rest = await busy.take(10)

        assert busy.let_go == []
        assert numbers(rest) == list(range(10, 20))

    async def test_a_member_that_was_cut_off_loses_its_messages_to_others(
        self, rig: SubscriptionRig, group: Group
    ) -> None:
        async with cutting(rig).behind_a_line(group.request) as (subscription, line):
            lost = await group.join(subscription)
            await group.publish_numbers(20)
            held = await lost.take(10)

            line.cut()
            heir = await group.join()
            came = await heir.take_until(lambda seen: {*range(20)} <= set(numbers(seen)))
            line.mend()
            await lost.subscription.acknowledge(held)
            await lost.subscription.give_back(held)
            await group.publish_numbers(20, first=20)
            await between_them(lost, heir, range(20, 40))

        assert first_times(numbers(came)) == list(range(20))
        again = [delivery for delivery in came if number_of(delivery) < len(held)]
        assert all(delivery.redelivered for delivery in again)


class Worker:
    """A member that receives and acknowledges until it is told to leave."""

    def __init__(self, member: Member, shared: "Shared") -> None:
        self.member = member
        self._shared = shared
        self._leaving = False
        self._task = asyncio.create_task(self._work())

    async def leave(self) -> None:
        """Finish the round and leave the consumer."""
        self._leaving = True
        await self._task
        await self.member.subscription.close()

    async def _work(self) -> None:
        subscription = self.member.subscription
        while not self._leaving:
            came = await subscription.receive(10)
            self._shared.note(numbers(came))
            await subscription.acknowledge(came)


class Shared:
    """What the members of a consumer have seen between them, in the order in which they did."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._had: set[int] = set()

    async def work(self, member: Member) -> Worker:
        """Let a member work."""
        return Worker(member, self)

    def note(self, found: Sequence[int]) -> None:
        """Add what a member was given."""
        self.seen += found
        self._had.update(found)

    async def have(self, expected: Iterable[int]) -> None:
        """Wait until everything has been seen at least once."""
        wanted = set(expected)
        try:
            async with asyncio.timeout(PATIENCE):
                while not wanted <= self._had:  # noqa: ASYNC110 - several tasks and a server
                    await asyncio.sleep(0.01)
        except TimeoutError:
            missing = sorted(wanted - self._had)
            raise AssertionError(f"never delivered: {missing}") from None


async def between_them(one: Member, other: Member, expected: Iterable[int]) -> None:
    """Let two members work until they have seen everything expected."""
    shared = Shared()
    workers = [await shared.work(one), await shared.work(other)]
    try:
        await shared.have(expected)
    finally:
        for worker in workers:
            await worker.leave()
