"""Redis Streams, read by the range of a stream."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis as Client

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.servers import Redis
from tests.bus.rig import LIMIT, Stored


@dataclass(frozen=True, slots=True)
class RedisRig:
    server: Redis
    name: str = "redis"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        url = self.server.url if address is None else f"redis://{address.rpartition('/')[2]}"
        return RedisMessageBus(url, publish_timeout=limit)

    async def read(self, topic: str) -> list[Stored]:
        async with Client.from_url(self.server.url) as client:
            entries: Any = await client.xrange(topic)
        return [_stored(fields) for _, fields in entries]


def _stored(fields: dict[bytes, bytes]) -> Stored:
    body, key = fields.pop(b"data", None), fields.pop(b"key", None)
    headers = {name.decode(): value.decode() for name, value in fields.items()}
    return Stored(None if key is None else key.decode(), body, headers)
