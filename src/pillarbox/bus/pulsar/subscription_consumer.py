"""The client's consumer, in a thread, since every call here blocks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from pulsar import Client, ConsumerType, InitialPosition, PulsarException, Timeout

from pillarbox.errors import InvalidConfig

SubscriptionType = Literal["key_shared", "failover"]

_TYPES: Final = {"key_shared": ConsumerType.KeyShared, "failover": ConsumerType.Failover}
_WAIT_MILLIS: Final = 1_000


def checked_type(kind: SubscriptionType) -> SubscriptionType:
    """Return a type that keeps the order of keys, or refuse another."""
    if kind not in _TYPES:
        raise InvalidConfig("subscription_type", f"is {kind!r}", "give key_shared or failover")
    return kind


class ThreadedConsumer:
    """Subscribe to topics and receive from them; all calls come from one thread.

    The client's own calls for event loops lose a message when they are cancelled; a thread that
    nobody cancels loses none.
    """

    def __init__(
        self,
        make: Callable[[], Client],
        name: str,
        addresses: Sequence[str],
        kind: SubscriptionType,
        window: int,
    ) -> None:
        self._make = make
        self._name = name
        self._addresses = addresses
        self._settings = {
            "consumer_type": _TYPES[kind],
            "initial_position": InitialPosition.Earliest,
            "receiver_queue_size": max(1, window),
            "max_total_receiver_queue_size_across_partitions": max(1, window),
            # Where the broker keeps them, a batch that was finished in part comes again in part.
            "batch_index_ack_enabled": True,
        }
        self.client: Client | None = None
        self._consumer: Any = None

    def open(self) -> Any:
        """Join the subscription of every topic, unless we have; raise the client's exceptions."""
        if self.client is None:
            self.client = self._make()
        if self._consumer is None:
            # The wrapper would copy each message.
            made = self.client.subscribe([*self._addresses], self._name, **self._settings)
            self._consumer = made._consumer  # noqa: SLF001
        return self._consumer

    def receive(self, most: int) -> tuple[Any, list[Any]]:
        """Wait a second for a first message; return the consumer and all that are here by then.

        Whoever has left joins again first.
        """
        consumer = self.open()
        found = []
        try:
            found.append(consumer.receive(_WAIT_MILLIS))
            while len(found) < most:
                found.append(consumer.receive(0))
        except Timeout:
            pass
        return consumer, found

    def leave(self) -> None:
        """Give everything back that is not acknowledged."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            consumer.close()
        except PulsarException:
            return  # It is closed already, or the broker is away and finds out by itself.
