"""Members of consumers on Pulsar, Key_Shared and Failover."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import _pulsar

from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.bus.pulsar.subscription_consumer import SubscriptionType
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Pulsar
from pillarbox.testing import RawMessage
from tests.bus.rig import nobody
from tests.bus.rig_pulsar import quiet_client
from tests.bus.subscription_rig import publish_all

PARTITIONS = 3
# A broker that was killed and restarted sometimes leaves whoever subscribes without an answer for
# tens of seconds, though it is healthy and makes topics.
LIMIT = timedelta(seconds=45)


@dataclass(frozen=True, slots=True)
class PulsarSubscriptionRig:
    """Publish unbatched, unless told so: what comes again of a batch is a matter of its own."""

    server: Pulsar
    name: str = "pulsar"
    kind: SubscriptionType = "key_shared"
    batched: bool = False

    def bus(self, *, address: str | None = None, limit: timedelta = LIMIT) -> PulsarMessageBus:
        return PulsarMessageBus(
            address or self.server.url,
            admin_url=self.server.admin_url,
            dedup=not self.batched,
            partitions=PARTITIONS,
            publish_timeout=limit,
            subscription_type=self.kind,
        )

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self.bus().subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        """Make the topics and the subscription: nothing is kept for those who come later."""
        bus = self.bus()
        await bus.apply(request.topics)
        await bus.close()
        first = self.subscription(request)
        await first.start(_ignore)
        await first.close()

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await publish_all(self.bus(), messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        await asyncio.to_thread(self._publish_raw, topic, messages)

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        address, limit = f"pulsar://{nobody()}", timedelta(seconds=3)
        return self.bus(address=address, limit=limit).subscribe(request)

    def _publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        client = quiet_client(self.server)
        try:
            producer = client.create_producer(f"{topic}-partition-0", batching_enabled=False)
            for raw in messages:
                producer._producer.send(_raw(raw).build())
        finally:
            client.close()


def _raw(message: RawMessage) -> Any:
    """Build a message with the client's core, which takes bytes where its wrapper wants text."""
    made = _pulsar.MessageBuilder()
    if message.body is None:
        made.set_null_value()
    else:
        made.content(message.body)
    if message.key is not None:
        made.partition_key(message.key)
    for name, value in message.headers.items():
        made.property(name, value)
    return made


async def _ignore(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""
