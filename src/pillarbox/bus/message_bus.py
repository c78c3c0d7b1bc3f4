"""The port to a broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pillarbox.bus.outcome import PublishOutcome
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import BusRules


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a bus can do, as data; the contract suite verifies each flag.

    `pipelines_keys`: several messages of one key may be in flight together, in one call or in calls
    that follow each other, because the bus never stores a message while one that was handed over
    before it, for the same topic and key, failed. Without it the projector keeps one message per key
    in flight.

    `deduplicates`: a message id that the broker has stored recently is not stored again.

    `publish_timeout`: `publish` has answered by then, whatever the broker does.
    """

    rules: BusRules
    publish_timeout: timedelta = timedelta(seconds=10)
    pipelines_keys: bool = False
    deduplicates: bool = False


class MessageBus(Protocol):
    """Take messages to a broker.

    Every method may be called from one event loop only; calls of `publish` may overlap.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        ...

    async def start(self) -> Sequence[str]:
        """Connect and look at the other side; return what is weak there, one sentence each.

        Raise `BusUnreachable` when nobody answers within the limit. Safe to repeat.
        """
        ...

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand over a batch; return one outcome per message, in the same order.

        Returns within the bus's time limit, whatever the broker does; a broker's failure is an
        outcome, never an exception. With `one_by_one` each message travels by itself, one after the
        other, so that a refusal hits only the message that deserves it. Repeating an accepted
        message must be harmless. A cancelled call leaves every message in an unknown state.
        """
        ...

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create what is missing for these topics; return what was made. Safe to repeat."""
        ...

    async def close(self) -> None:
        """Disconnect within a limit; messages without an answer are unknown. Safe to repeat."""
        ...
