"""The port from a broker: messages of some topics for one consumer, as one member of its group."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from pillarbox.event.incoming import Incoming


class Delivery(NamedTuple):
    """One message in our hands until it is acknowledged, given back, or its partition lost.

    `partition` names the place whose messages come in order, `position` the message in it, for a
    person to find; empty where the broker has none that outlasts a connection. Delivered again, to
    whomever, a message has the same `message`, `partition` and `position`: what the broker counts
    meanwhile is not among the headers. `redelivered` is False only if no member can have begun with
    it before. `token` is the subscription's own.
    """

    message: Incoming
    partition: str
    position: str
    redelivered: bool
    token: Any


Revoked = Callable[[Collection[str]], Awaitable[None]]
"""Called before partitions go to another member; returns when nothing of them is being worked on."""


@dataclass(frozen=True, slots=True)
class Reception:
    """What a subscription can do, as data; the contract suite verifies each flag.

    `orders_keys`: messages of one key come in their order, to one member at a time. Without it the
    runtime needs the leases of partitions, or gives no order.

    `hand_back_limit`: how long a delivery may stay in our hands before the broker gives it to
    another member; None if it may stay as long as the connection lives.

    `longest_redelivery`: how late the broker may deliver a message once more; None if it never ends.
    """

    orders_keys: bool
    hand_back_limit: timedelta | None
    longest_redelivery: timedelta | None


UNORDERED: Final = (
    "without partitions= its members share every message: those of one key may come in another "
    "order, also when a member has died; give partitions= to publishers and consumers alike"
)
"""What a subscription says whose topics have no partitions by which a key would have one member."""


class Subscription(Protocol):
    """Receive messages. Every method is called from one event loop; calls may overlap."""

    @property
    def reception(self) -> Reception:
        """What this subscription can do; known once it has started."""
        ...

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Join the group; return what is weak on the other side, one sentence each.

        Raise `BusUnreachable` when nobody answers within the limit, `InvalidConfig` when something
        is missing that only a person can add: a dead-letter route, say.
        """
        ...

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Wait for messages; return one to `most`, or none after about a second of silence.

        Messages of one partition come in its order. A broker that is away is waited for, here and
        nowhere else, without an exception. A cancelled call loses nothing. Whoever does not call it
        gets no more messages, and stays a member all the same.
        """
        ...

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Tell the broker that these are finished: their effects are committed.

        In any order; a broker that counts positions moves to the lowest unfinished one. Those of
        lost partitions are passed over. Not an error when the broker is away: it delivers again.
        """
        ...

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Let the broker deliver these again, to this member or another, in their order."""
        ...

    async def lag(self) -> int | None:
        """Return how many messages wait behind those in our hands, or None if nobody knows."""
        ...

    async def close(self) -> None:
        """Leave the group within a limit; what is unfinished is delivered to others. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What a consumer asks a bus for: the group's name, the topics, and how many to hold at once."""

    consumer: str
    topics: tuple[str, ...]
    window: int = 1_000


@runtime_checkable
class PreparingBus(Protocol):
    """A bus whose broker keeps messages only for consumers that it knows."""

    async def prepare(self, consumers: Sequence[SubscriptionRequest]) -> Sequence[str]:
        """Create what is missing for these consumers; return what was made. Safe to repeat.

        What is published from then on is kept for them. Nothing is received, and no member that
        runs is disturbed.
        """
        ...


@runtime_checkable
class RememberingBus(Protocol):
    """A bus whose broker keeps messages that were taken: a new consumer is given them all again."""

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say of these topics where the first messages are gone, or may be; one part of a sentence each.

        Each names the oldest that is kept, where the broker knows it. Raise `BusUnreachable` when
        nobody answers within the limit.
        """
        ...


@runtime_checkable
class GroupCounting(Protocol):
    """A subscription whose `lag` counts its own partitions, and that can count those of others too."""

    async def group_lag(self) -> int | None:
        """Return how many messages wait for the whole group, or None if nobody knows."""
        ...


@runtime_checkable
class EndSeeing(Protocol):
    """A subscription that knows more than its `lag` says of whether anything waits."""

    async def is_at_end(self) -> bool:
        """Tell whether the group has acknowledged all that was published; False if nobody knows."""
        ...


async def nothing_waits(subscription: Subscription) -> bool:
    """Tell whether a broker says that it has nothing more for a group; silence says nothing."""
    if isinstance(subscription, EndSeeing):
        return await subscription.is_at_end()
    return await subscription.lag() == 0


class Outlook(NamedTuple):
    """What a broker says of a group: how many messages wait, and whether it has reached the end."""

    waiting: int | None
    at_end: bool | None


async def outlook(subscription: Subscription) -> Outlook:
    """Ask a broker what it has for a group; None where nobody knows."""
    if isinstance(subscription, GroupCounting):
        waiting = await subscription.group_lag()
        return Outlook(waiting, None if waiting is None else waiting == 0)
    at_end = await nothing_waits(subscription)
    waiting = await subscription.lag()
    return Outlook(waiting, True if at_end else None if waiting is None else False)


class SubscribingBus(Protocol):
    """A bus that can also be listened to."""

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make a subscription; nothing connects before its `start`."""
        ...


async def forgotten_by(bus: object, topics: Sequence[str]) -> Sequence[str]:
    """Say where the log of a bus does not reach the first message; one that has none says so."""
    if isinstance(bus, RememberingBus):
        return await bus.forgotten(topics)
    return ["this bus has no log of messages that were taken"]
