"""NATS JetStream, read by a consumer of its own client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Nats
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, ProxyLine, Stored, nobody
from tests.support.faultproxy import FaultProxy

TOO_LARGE = b"x" * 1_100_000


@dataclass(frozen=True, slots=True)
class NatsRig:
    server: Nats
    name: str = "nats"
    binding: Binding = "http"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return NatsMessageBus(address or self.server.url, publish_timeout=limit)

    def structured_bus(self) -> MessageBus:
        return NatsMessageBus(self.server.url, content_mode="structured")

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=f"nats://{nobody()}")

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            bus = self.bus(limit=limit, address=f"nats://{proxy.host}:{proxy.port}")
            yield bus, ProxyLine(proxy)
            await bus.close()

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        return message._replace(data=TOO_LARGE)

    async def forbid(self, topic: str) -> None:
        await self._limit(topic, messages=1)

    async def permit(self, topic: str) -> None:
        await self._limit(topic, messages=-1)

    async def read(self, topic: str) -> list[Stored]:
        return await read_stream(await nats.connect(self.server.url), topic)

    async def _limit(self, topic: str, messages: int) -> None:
        """Let the stream of a topic hold so many messages; a full one takes none."""
        client = await nats.connect(self.server.url)
        try:
            stream = client.jetstream()
            config = (await stream.stream_info(topic.partition(".")[0])).config
            config.max_msgs, config.discard = messages, DiscardPolicy.NEW
            await stream.update_stream(config)
        finally:
            await client.close()


async def read_stream(client: Client, topic: str) -> list[Stored]:
    """Return all messages of a topic, and close the client."""
    try:
        stream = client.jetstream()
        # Without acknowledgements a consumer is not held at a thousand messages.
        unacknowledged = ConsumerConfig(ack_policy=AckPolicy.NONE)
        reader = await stream.pull_subscribe(topic, config=unacknowledged)
        waiting = (await reader.consumer_info()).num_pending
        messages = await reader.fetch(waiting, timeout=20) if waiting else []
        return [Stored(None, m.data, dict(m.headers or {})) for m in messages]
    finally:
        await client.close()
