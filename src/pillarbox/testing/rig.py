"""What the contract's tests need of a broker: a rig, and powers that a rig may have."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol, runtime_checkable

from pillarbox.bus.message_bus import MessageBus
from pillarbox.event.envelope import MessageEnvelope

LIMIT: Final = timedelta(seconds=10)

Binding = Literal["kafka", "http", "amqp"]
"""The binding of the official `cloudevents` package that reads what a bus stored."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the broker keeps it; `key` is None where the broker keeps none."""

    key: str | None
    body: bytes | None
    headers: dict[str, str]

    @property
    def event_id(self) -> str:
        """The id of the event, from its header."""
        return self.headers["event_id"]


class BusRig(Protocol):
    """Make buses on one broker, and read what is stored there without them."""

    @property
    def name(self) -> str:
        """The name of the bus, for messages."""
        ...

    def bus(self, *, limit: timedelta = LIMIT) -> MessageBus:
        """Make a bus that has not started, with this `publish_timeout`."""
        ...

    async def read(self, topic: str) -> list[Stored]:
        """Return every message of a topic; those of one key in the order in which they stand."""
        ...


@runtime_checkable
class RefusesMessages(Protocol):
    """The power to have one message refused."""

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        """See to it that the broker refuses this message, and no ordinary one of its topic.

        Return the message to send: it may be changed, to be too large, say. Called before anything
        is published to the topic.
        """
        ...


@runtime_checkable
class ForbidsTopics(Protocol):
    """The power to close a topic to the bus: to take away its right, say, or its stream."""

    async def forbid(self, topic: str) -> None:
        """Close a topic that was published to; others stay open."""
        ...

    async def permit(self, topic: str) -> None:
        """Open it again."""
        ...


class Line(Protocol):
    """The line between a bus and its broker."""

    def lose_answers(self) -> None:
        """Let messages pass and their answers vanish."""
        ...

    def cut_after(self, count: int) -> None:
        """Break the line, once, when so many further bytes have gone to the broker."""
        ...

    def mend(self) -> None:
        """Let everything pass again."""
        ...


@runtime_checkable
class LosesAnswers(Protocol):
    """The power to lose a broker's answers, and the line to it."""

    def behind_a_line(
        self, *, limit: timedelta
    ) -> AbstractAsyncContextManager[tuple[MessageBus, Line]]:
        """Make a bus whose line to the broker can lose answers and break."""
        ...


@runtime_checkable
class Unreachable(Protocol):
    """The power to make a bus that nobody answers."""

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        """Make a bus with an address where nothing listens."""
        ...


@runtime_checkable
class StopsBroker(Protocol):
    """The power to stop a broker that nobody else uses."""

    async def kill(self) -> None:
        """End the broker at once; what it has on disk stays."""
        ...

    async def restart(self) -> None:
        """Start it again with its data, at the same address."""
        ...

    async def freeze(self) -> None:
        """Stop it in its tracks; connections stay open and mute."""
        ...

    async def thaw(self) -> None:
        """Let it go on."""
        ...


@runtime_checkable
class Structures(Protocol):
    """The power to send CloudEvents in structured mode."""

    def structured_bus(self) -> MessageBus:
        """Make a bus that sends each event as one JSON object."""
        ...


@runtime_checkable
class NamesBinding(Protocol):
    """What a rig knows of its bus's CloudEvents."""

    @property
    def binding(self) -> Binding:
        """The binding that reads the stored headers."""
        ...
