"""The suite of subscriptions finds what is wrong: each of these has one fault, and is caught."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest

from pillarbox.bus.memory import MemoryMessageBus
from pillarbox.bus.memory_group import Group as MemoryGroup
from pillarbox.bus.memory_subscription import MemorySubscription
from pillarbox.bus.subscription import Delivery, Revoked, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing import SubscriptionContract, SubscriptionRig
from pillarbox.testing.subscription.case import Group
from pillarbox.testing.subscription.powers import hurrying

CAUGHT = (AssertionError, pytest.fail.Exception)
Trial = Callable[[SubscriptionContract, Group], Awaitable[None]]


class Honest(MemorySubscription):
    """A subscription without a fault."""


class Deaf(MemorySubscription):
    """Acknowledgements are not heard."""

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        del done


class Hasty(MemorySubscription):
    """Messages are acknowledged as soon as they are received."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        came = await super().receive(most)
        await self.acknowledge(came)
        return came


class Ruthless(MemorySubscription):
    """Partitions go without a word."""

    async def start(self, revoked: Revoked) -> Sequence[str]:
        del revoked
        return await super().start(_say_nothing)


class Leaky(MemorySubscription):
    """A cancelled call takes its messages with it."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        came = await super().receive(most)
        await asyncio.sleep(0)
        return came


class Unsorted(MemorySubscription):
    """Messages come in the wrong order."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        return (await super().receive(most))[::-1]


class Forgetful(MemorySubscription):
    """Nobody can tell that a message came before."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        return [found._replace(redelivered=False) for found in await super().receive(most)]


class Generous(MemorySubscription):
    """More messages come than were asked for."""

    async def receive(self, most: int) -> Sequence[Delivery]:
        return await super().receive(most + 1)


class Thrifty(MemorySubscription):
    """What is given back is dropped."""

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        await self.acknowledge(unfinished)


async def _say_nothing(_: Collection[str]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class FaultyRig:
    made: type[MemorySubscription]
    name: str = "faulty"
    bus: MemoryMessageBus = field(default_factory=MemoryMessageBus)

    def subscription(self, request: SubscriptionRequest) -> MemorySubscription:
        group: MemoryGroup = self.bus.subscribe(request)._group
        return self.made(group)

    async def prepare(self, request: SubscriptionRequest) -> None:
        self.bus.subscribe(request)

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await self.bus.publish(messages)


CASES: list[tuple[type[MemorySubscription], Trial]] = [
    (
        Deaf,
        SubscriptionContract.test_what_was_acknowledged_does_not_come_again_and_the_rest_does,
    ),
    (
        Hasty,
        SubscriptionContract.test_what_was_acknowledged_does_not_come_again_and_the_rest_does,
    ),
    (Hasty, SubscriptionContract.test_what_a_member_leaves_unfinished_goes_to_another),
    (Ruthless, SubscriptionContract.test_a_key_is_in_the_hands_of_one_member_at_a_time),
    (Ruthless, SubscriptionContract.test_a_partition_that_was_let_go_is_finished_first),
    (Leaky, SubscriptionContract.test_a_cancelled_call_loses_nothing),
    (Unsorted, SubscriptionContract.test_the_messages_of_a_key_come_in_their_order),
    (Unsorted, SubscriptionContract.test_what_is_given_back_comes_again_in_its_order),
    (
        Forgetful,
        SubscriptionContract.test_a_message_left_behind_comes_again_though_later_ones_are_done,
    ),
    (Generous, SubscriptionContract.test_no_more_come_than_were_asked_for),
    (Thrifty, SubscriptionContract.test_what_is_given_back_comes_before_what_nobody_has_had),
]


async def try_on(made: type[MemorySubscription], trial: Trial) -> None:
    rig: SubscriptionRig = FaultyRig(made)
    group = Group(rig)
    await rig.prepare(group.request)
    try:
        await trial(SubscriptionContract(), group)
    finally:
        await group.close()


@pytest.mark.parametrize(
    ("faulty", "trial"), CASES, ids=[f"{kind.__name__}-{trial.__name__}" for kind, trial in CASES]
)
async def test_a_fault_is_caught(
    faulty: type[MemorySubscription], trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.testing.subscription.case.PATIENCE", 2.0)

    await try_on(Honest, trial)
    with pytest.raises(CAUGHT):
        await try_on(faulty, trial)


def test_a_power_that_a_rig_lacks_skips_with_a_sentence() -> None:
    with pytest.raises(pytest.skip.Exception, match="the rig of faulty has a broker"):
        hurrying(FaultyRig(Honest))
