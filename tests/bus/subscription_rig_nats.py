"""NATS JetStream for tests of subscriptions."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import nats

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.nats.subscription_durables import durable_name
from pillarbox.bus.partition import partitions_of
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Nats
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import MemberLine, RawMessage
from tests.bus.rig import nobody
from tests.bus.subscription_rig import ProxyMemberLine, publish_all
from tests.support.faultproxy import FaultProxy

ACK_WAIT = timedelta(seconds=3)
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class NatsSubscriptionRig:
    server: Nats
    partitions: int | None = PARTITIONS
    name: str = "nats"
    ack_wait: timedelta = ACK_WAIT

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self._bus().subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        bus = self._bus()
        await bus.apply(request.topics)
        await bus.close()

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await publish_all(self._bus(), messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        [place, *_] = partitions_of(topic, self.partitions)
        client = await nats.connect(self.server.url)
        try:
            for raw in messages:
                lines = b"".join(b"%b: %b\r\n" % (n.encode(), v) for n, v in raw.headers.items())
                head = b"NATS/1.0\r\n%b\r\n" % lines
                body = raw.body or b""
                command = f"HPUB {place} {len(head)} {len(head) + len(body)}\r\n"
                await client._send_command(b"%b%b%b\r\n" % (command.encode(), head, body))
            await client.flush()
        finally:
            await client.close()

    async def rewind(self, request: SubscriptionRequest) -> None:
        [topic] = request.topics
        client = await nats.connect(self.server.url)
        try:
            manager = client.jsm()
            for place in partitions_of(topic, self.partitions):
                stream = await manager.find_stream_name_by_subject(place)
                await manager.delete_consumer(stream, durable_name(request.consumer, place))
        finally:
            await client.close()

    def hurried(self, request: SubscriptionRequest) -> tuple[Subscription, timedelta]:
        return self.subscription(request), self.ack_wait

    @asynccontextmanager
    async def behind_a_line(
        self, request: SubscriptionRequest
    ) -> AsyncIterator[tuple[Subscription, MemberLine]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            subscription = self._bus(f"nats://{proxy.host}:{proxy.port}").subscribe(request)
            yield subscription, ProxyMemberLine(proxy)
            await subscription.close()

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        bus = NatsMessageBus(f"nats://{nobody()}", publish_timeout=timedelta(seconds=5))
        return bus.subscribe(request)

    def _bus(self, address: str | None = None) -> NatsMessageBus:
        url = address or self.server.url
        return NatsMessageBus(url, partitions=self.partitions, ack_wait=self.ack_wait)
