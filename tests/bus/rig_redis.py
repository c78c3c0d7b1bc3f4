"""Redis Streams, read by the range of a stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import REDIS
from pillarbox.servers import Redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, ProxyLine, Stored, nobody
from tests.support.faultproxy import FaultProxy

TOO_LARGE = b"x" * (REDIS.message_max_bytes + 1)


@dataclass(frozen=True, slots=True)
class RedisRig:
    server: Redis
    name: str = "redis"
    binding: Binding = "kafka"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        url = self.server.url if address is None else f"redis://{address.rpartition('/')[2]}"
        return RedisMessageBus(url, publish_timeout=limit)

    def structured_bus(self) -> MessageBus:
        return RedisMessageBus(self.server.url, content_mode="structured")

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=nobody())

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            bus = self.bus(limit=limit, address=f"{proxy.host}:{proxy.port}")
            yield bus, ProxyLine(proxy)
            await bus.close()

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        return message._replace(data=TOO_LARGE)

    async def forbid(self, topic: str) -> None:
        async with Client.from_url(self.server.url) as client:
            await client.rename(topic, f"{topic}.aside")
            await client.set(topic, "no stream")

    async def permit(self, topic: str) -> None:
        async with Client.from_url(self.server.url) as client:
            await client.rename(f"{topic}.aside", topic)

    async def read(self, topic: str) -> list[Stored]:
        async with Client.from_url(self.server.url) as client:
            entries: Any = await client.xrange(topic)
        return [_stored(fields) for _, fields in entries]


def _stored(fields: dict[bytes, bytes]) -> Stored:
    body, key = fields.pop(b"data", None), fields.pop(b"key", None)
    headers = {name.decode(): value.decode() for name, value in fields.items()}
    return Stored(None if key is None else key.decode(), body, headers)
