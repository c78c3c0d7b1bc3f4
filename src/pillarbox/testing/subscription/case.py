"""What the tests of a subscription share: a consumer, its members, and what they were given."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio

from pillarbox.bus.subscription import Delivery, Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.testing.messages import message, new_topic
from pillarbox.testing.subscription.rig import SubscriptionRig

PATIENCE: Final = 60.0  # for a broker that must first find out that a member is gone
MOST: Final = 100
_QUIET_ROUNDS: Final = 3


class Member:
    """One member of a consumer, and the partitions that it was told to let go."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.let_go: list[str] = []
        self.before_letting_go: Callable[[Collection[str]], Awaitable[None]] | None = None

    async def start(self) -> Sequence[str]:
        """Join the consumer."""
        return await self.subscription.start(self._revoked)

    async def take(self, count: int, *, most: int = MOST) -> list[Delivery]:
        """Receive exactly so many messages; fail when they do not come."""
        taken: list[Delivery] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while len(taken) < count:
                    taken += await self.subscription.receive(min(most, count - len(taken)))
        except TimeoutError:
            pytest.fail(f"only {len(taken)} of {count} messages came within {PATIENCE:.0f} s")
        return taken

    async def take_until(self, done: Callable[[Sequence[Delivery]], bool]) -> list[Delivery]:
        """Receive and acknowledge until the caller has seen enough."""
        taken: list[Delivery] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while not done(taken):
                    came = await self.subscription.receive(MOST)
                    taken += came
                    await self.subscription.acknowledge(came)
        except TimeoutError:
            pytest.fail(f"{len(taken)} messages came, and not the expected ones: {numbers(taken)}")
        return taken

    async def take_rest(self) -> list[Delivery]:
        """Receive what comes until it has been quiet for a few rounds."""
        taken: list[Delivery] = []
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            came = await self.subscription.receive(MOST)
            taken += came
            quiet = 0 if came else quiet + 1
        return taken

    async def _revoked(self, partitions: Collection[str]) -> None:
        if self.before_letting_go is not None:
            await self.before_letting_go(partitions)
        self.let_go += partitions


class Group:
    """A consumer with topics of its own, whose members are closed when the test ends."""

    def __init__(self, rig: SubscriptionRig) -> None:
        self._rig = rig
        self._made: list[Member] = []
        self.request = new_request()

    @property
    def topic(self) -> str:
        """Its only topic."""
        return self.request.topics[0]

    async def join(self, subscription: Subscription | None = None) -> Member:
        """Start one more member."""
        member = Member(subscription or self._rig.subscription(self.request))
        self._made.append(member)
        await member.start()
        return member

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        """Publish by the bus."""
        await self._rig.publish(messages)

    async def publish_numbers(
        self, count: int, *, first: int = 0, keys: int = 1
    ) -> list[MessageEnvelope]:
        """Publish messages with running numbers, their keys in turn."""
        made = [message(self.topic, n, key=f"key-{n % keys}") for n in range(first, first + count)]
        await self._rig.publish(made)
        return made

    async def close(self) -> None:
        """Close every member; more than once is harmless."""
        for member in self._made:
            await member.subscription.close()


class SubscriptionCase:
    """A consumer for whom everything is prepared."""

    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def group(self, rig: SubscriptionRig) -> AsyncIterator[Group]:
        """A consumer without members."""
        made = Group(rig)
        await rig.prepare(made.request)
        yield made
        await made.close()


def new_request(window: int = 1_000) -> SubscriptionRequest:
    """Name a consumer and a topic that nobody has used."""
    return SubscriptionRequest(f"c{uuid4().hex}", (new_topic(),), window)


def ids_of(deliveries: Iterable[Delivery]) -> list[str]:
    """Return the event ids of deliveries, from the header."""
    return [delivery.message.headers["event_id"] for delivery in deliveries]


def number_of(delivery: Delivery) -> int:
    """Return the number that a message was made with."""
    return int((delivery.message.body or b"").removeprefix(b'{"n":').removesuffix(b"}"))


def numbers(deliveries: Iterable[Delivery]) -> list[int]:
    """Return the numbers that messages were made with."""
    return [number_of(delivery) for delivery in deliveries]


def by_key(found: Iterable[int], keys: int) -> list[list[int]]:
    """Part numbers by their keys, each in the order in which they stand."""
    parted: dict[int, list[int]] = defaultdict(list)
    for number in found:
        parted[number % keys].append(number)
    return [parted[key] for key in sorted(parted)]


def first_times(found: Iterable[int]) -> list[int]:
    """Leave out repetitions."""
    return list(dict.fromkeys(found))
