"""Members of consumers on RabbitMQ: with a queue for each partition, or one that all share."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiormq
from pamqp import commands

from pillarbox.bus.partition import partitions_of
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import RabbitMq
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import MemberLine, RawMessage
from tests.bus.rig import LIMIT, nobody
from tests.bus.subscription_rig import ProxyMemberLine, publish_all
from tests.support.faultproxy import FaultProxy

PARTITIONS = 4
EXCHANGE = "events"


@dataclass(frozen=True, slots=True)
class SharedRabbitMqSubscriptionRig:
    server: RabbitMq
    name: str = "rabbitmq, shared"
    partitions: int | None = None

    def bus(self, *, address: str | None = None, limit: timedelta = LIMIT) -> RabbitMQMessageBus:
        url = self.server.url if address is None else f"amqp://guest:guest@{address}/"
        return RabbitMQMessageBus(
            url, partitions=self.partitions, publish_timeout=limit, exchange=EXCHANGE
        )

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self.bus().subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        """Make the consumer's queues: an exchange keeps nothing for those who come later."""
        first = self.subscription(request)
        await first.start(_ignore)
        await first.close()

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await publish_all(self.bus(), messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        routing_key = partitions_of(topic, self.partitions)[0]
        async with aiormq.connect(self.server.url) as client:
            channel = await client.channel()
            for raw in messages:
                headers = {name: bytearray(value) for name, value in raw.headers.items()}
                await channel.basic_publish(
                    raw.body or b"",
                    exchange=EXCHANGE,
                    routing_key=routing_key,
                    properties=commands.Basic.Properties(headers={**headers}),
                )

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        return self.bus(address=nobody(), limit=timedelta(seconds=3)).subscribe(request)


@dataclass(frozen=True, slots=True)
class RabbitMqSubscriptionRig(SharedRabbitMqSubscriptionRig):
    name: str = "rabbitmq"
    partitions: int | None = PARTITIONS

    @asynccontextmanager
    async def behind_a_line(
        self, request: SubscriptionRequest
    ) -> AsyncIterator[tuple[Subscription, MemberLine]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            made = self.bus(address=f"{proxy.host}:{proxy.port}").subscribe(request)
            yield made, ProxyMemberLine(proxy)
            await made.close()


async def _ignore(_: Collection[str]) -> None:
    """Have nothing of a partition in work."""
