"""A stream of NATS JetStream."""

import contextlib
from collections import Counter
from typing import Any, Final

import nats
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NotFoundError

from benchmarks.brokers.broker import LIMIT_SECONDS, Message
from pillarbox.servers import Nats

STREAM: Final = "shop"


class NatsStream:
    """One stream; on disk each message is synced, in memory the client is the limit."""

    side: Final = "nats_by_hand"

    def __init__(self, server: Nats, storage: StorageType) -> None:
        self.url = self.address = server.url
        self._storage = storage

    async def start_afresh(self) -> None:
        """Delete the stream with its messages and the ids that it remembers; make it again."""
        async with await nats.connect(self.url) as client:
            js = client.jetstream()
            with contextlib.suppress(NotFoundError):
                await js.delete_stream(STREAM)
            config = StreamConfig(name=STREAM, subjects=[f"{STREAM}.>"], storage=self._storage)
            await js.add_stream(config)

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages."""
        found: Counter[Message] = Counter()
        async with await nats.connect(self.url) as client:
            inbox: Any = await client.jetstream().subscribe(f"{STREAM}.>", ordered_consumer=True)
            while found.total() < count:
                message = await inbox.next_msg(timeout=LIMIT_SECONDS)
                headers = ((name, value.encode()) for name, value in message.headers.items())
                found[message.subject.encode(), message.data, tuple(sorted(headers))] += 1
        return found
