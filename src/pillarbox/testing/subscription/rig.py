"""What the tests of a subscription need of a broker: a rig, and powers that a rig may have."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, runtime_checkable

from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message of a stranger; a key or headers that the broker cannot keep are left out."""

    body: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


class SubscriptionRig(Protocol):
    """Make members of consumers on one broker, and publish there without them."""

    @property
    def name(self) -> str:
        """The name of the broker, for messages."""
        ...

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        """Make one more member that has not started, on a connection of its own."""
        ...

    async def prepare(self, request: SubscriptionRequest) -> None:
        """See to it that what is published to these topics from now on is kept for this consumer.

        Where the broker has partitions, each topic gets several.
        """
        ...

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        """Publish by the bus of this broker, in order; return when all are accepted."""
        ...


@runtime_checkable
class PublishesRaw(Protocol):
    """The power to publish what our bus never would."""

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        """Publish these as a stranger does, all to one partition, in order."""
        ...


@runtime_checkable
class Rewinds(Protocol):
    """The power of an operator to have everything delivered again."""

    async def rewind(self, request: SubscriptionRequest) -> None:
        """Put the consumer back to the first message; it has no members at the time."""
        ...


@runtime_checkable
class Hurries(Protocol):
    """The power to make the broker impatient with members that do nothing."""

    def hurried(self, request: SubscriptionRequest) -> tuple[Subscription, timedelta]:
        """Make a member of a consumer, and say how long the broker waits for it.

        That is the poll interval, the ack wait, the idle time: as short as the broker allows.
        """
        ...


class MemberLine(Protocol):
    """The line between a member and its broker."""

    def cut(self) -> None:
        """Let nothing pass; connections stay open and mute."""
        ...

    def mend(self) -> None:
        """Let everything pass again; connections may have to be made anew."""
        ...


@runtime_checkable
class CutsMembers(Protocol):
    """The power to cut off one member, which the broker then takes for dead before long."""

    def behind_a_line(
        self, request: SubscriptionRequest
    ) -> AbstractAsyncContextManager[tuple[Subscription, MemberLine]]:
        """Make a member whose line can be cut; it is closed with the block."""
        ...


@runtime_checkable
class NobodyThere(Protocol):
    """The power to make a member that nobody answers."""

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        """Make a member with an address where nothing listens, and a limit of a few seconds."""
        ...
