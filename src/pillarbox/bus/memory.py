"""A bus in memory, for tests: it keeps what it accepted and fails as it is told."""

import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from zlib import crc32

from pillarbox.bus.handover import HELD_BACK
from pillarbox.bus.memory_group import Log, Placed
from pillarbox.bus.memory_subscription import SILENCE, MemorySubscription
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.outcome import ACCEPTED, Accepted, PublishOutcome, Unavailable
from pillarbox.bus.subscription import Reception, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.incoming import Incoming
from pillarbox.event.rules import MEMORY

Choice = Callable[[MessageEnvelope], bool] | Collection[str]

_CLOSED: Final = Unavailable("closed", "the bus is closed")


@dataclass(slots=True)
class Failure:
    """A failure that waits for its messages."""

    concerns: Callable[[MessageEnvelope], bool]
    outcome: PublishOutcome
    store: bool
    left: int | None


class MemoryMessageBus:
    """Keep messages in memory, in the order in which they were accepted.

        bus = MemoryMessageBus()
        bus.fail_with({"0190…"}, Unknown("ack-lost", "in this test"), store=True)

    `messages` is the log of what was stored. A message whose key failed earlier in the same call, or
    after its own call was made, is held back, as every bus does where it matters. A topic has
    `partitions`, which the members of a group share; `reception` is what its subscriptions can do,
    and `silence` is how long they wait for a message.
    """

    def __init__(
        self,
        capabilities: Capabilities | None = None,
        *,
        partitions: int = 4,
        reception: Reception | None = None,
        silence: timedelta = timedelta(seconds=SILENCE),
    ) -> None:
        self._capabilities = capabilities or Capabilities(MEMORY, pipelines_keys=True)
        self._partitions, self._reception = partitions, reception
        self._silence = silence.total_seconds()
        self._log = Log()
        self._failures: list[Failure] = []
        self._ids: set[tuple[str, str]] = set()
        self._calls = 0
        self._stopped: dict[tuple[str | None, str], int] = {}
        self._open = True
        self.messages: list[MessageEnvelope] = []
        self.topics: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    def fail_with(
        self,
        choice: Choice,
        outcome: PublishOutcome,
        *,
        store: bool = False,
        times: int | None = None,
    ) -> Failure:
        """Answer chosen messages with an outcome, so many times or until `recover`.

        `store` keeps the message all the same, as a broker does whose acknowledgement is lost.
        """
        concerns = choice if callable(choice) else _with_ids(frozenset(choice))
        failure = Failure(concerns, outcome, store, times)
        self._failures.append(failure)
        return failure

    def recover(self) -> None:
        """Forget every failure."""
        self._failures.clear()

    async def start(self) -> Sequence[str]:
        """Open the bus; there is nobody to reach."""
        self._open = True
        return ()

    def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Coroutine[Any, Any, Sequence[PublishOutcome]]:
        """Take a batch as it was told to."""
        del one_by_one
        self._calls += 1
        return self._publish(batch, self._calls)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Remember topics; return those that are new."""
        made = [topic for topic in dict.fromkeys(topics) if topic not in self.topics]
        self.topics += made
        return made

    async def close(self) -> None:
        """Take no more messages."""
        self._open = False

    def subscribe(self, request: SubscriptionRequest) -> MemorySubscription:
        """Make a member of the consumer's group; it sees everything from the beginning."""
        group = self._log.group(request.consumer, request.topics, self._partitions)
        return MemorySubscription(group, self._reception, self._silence)

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say nothing: everything is kept."""
        del topics
        return ()

    def put(self, message: Incoming, partition: int | None = None) -> None:
        """Store a message of a foreign producer, as odd as it may be; its key chooses the place."""
        chosen = crc32((message.key or "").encode("utf-8", "surrogatepass"))
        self._log.append(Placed(message, chosen if partition is None else partition))

    def redeliver(self, chosen: Callable[[Incoming], bool] = lambda _: True) -> None:
        """Deliver what was delivered before once more, to each group, behind what waits."""
        for group in self._log.groups.values():
            group.redeliver(chosen)

    def shuffle(self, choose: random.Random) -> None:
        """Mix what waits in each group; only each key's own order is kept."""
        for group in self._log.groups.values():
            group.shuffle(choose)

    async def _publish(
        self, batch: Sequence[MessageEnvelope], call: int
    ) -> Sequence[PublishOutcome]:
        if not self._open:
            return [_CLOSED] * len(batch)
        outcomes: list[PublishOutcome] = []
        for message in batch:
            lane = None if message.key is None else (message.topic, message.key)
            held = lane is not None and call <= self._stopped.get(lane, 0)
            outcomes.append(HELD_BACK if held else self._take(message))
            if lane is not None and not isinstance(outcomes[-1], Accepted):
                self._stopped[lane] = self._calls  # Whoever called before now did not know of it.
        return outcomes

    def _take(self, message: MessageEnvelope) -> PublishOutcome:
        failure = next((found for found in self._failures if found.concerns(message)), None)
        if failure is None:
            self._store(message)
            return ACCEPTED
        if failure.left is not None:
            failure.left -= 1
            if not failure.left:
                self._failures.remove(failure)
        if failure.store:
            self._store(message)
        return failure.outcome

    def _store(self, message: MessageEnvelope) -> None:
        identity = (message.tenant_id, message.event_id)
        if not (self._capabilities.deduplicates and identity in self._ids):
            self._ids.add(identity)
            self.messages.append(message)
            self._log.append(message)


def _with_ids(ids: frozenset[str]) -> Callable[[MessageEnvelope], bool]:
    return lambda message: message.event_id in ids
