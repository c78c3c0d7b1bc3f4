"""A stream of Redis."""

from collections import Counter
from typing import Any, Final

from redis.asyncio import Redis as Client

from benchmarks.backlog import TOPIC
from benchmarks.brokers.broker import Message
from pillarbox.servers import Redis


class RedisStream:
    """One stream; the server syncs its file before it answers."""

    side: Final = "redis_by_hand"

    def __init__(self, server: Redis) -> None:
        self.url = self.address = server.url

    async def start_afresh(self) -> None:
        """Delete the stream; the first entry makes it again."""
        async with Client.from_url(self.url) as client:
            await client.delete(TOPIC)

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages."""
        async with Client.from_url(self.url) as client:
            entries: Any = await client.xrange(TOPIC, count=count)
        return Counter([_read(fields) for _, fields in entries])


def _read(fields: dict[bytes, bytes]) -> Message:
    key, body = fields.pop(b"key"), fields.pop(b"data")
    return key, body, tuple(sorted((name.decode(), value) for name, value in fields.items()))
