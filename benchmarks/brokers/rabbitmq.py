"""A queue of RabbitMQ."""

import asyncio
from collections import Counter
from typing import Final

import aiormq
from aiormq.abc import DeliveredMessage

from benchmarks.backlog import TOPIC
from benchmarks.brokers.broker import LIMIT_SECONDS, Message
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.servers import RabbitMq

_PREFETCHED: Final = 65_535
_PROPERTIES: Final = (
    "content_type",
    "delivery_mode",
    "message_id",
    "timestamp",
    "message_type",
    "app_id",
)


class RabbitMqQueue:
    """One quorum queue, as our bus makes it."""

    side: Final = "rabbitmq_by_hand"

    def __init__(self, server: RabbitMq) -> None:
        self.url = self.address = server.url

    async def start_afresh(self) -> None:
        """Delete the queue with its messages and make it again."""
        async with aiormq.connect(self.url) as client:
            await (await client.channel()).queue_delete(TOPIC)
        bus = RabbitMQMessageBus(self.url)
        await bus.apply([TOPIC])
        await bus.close()

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages; their properties count as headers."""
        arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

        async def take(message: DeliveredMessage) -> None:
            arrived.put_nowait(message)

        async with aiormq.connect(self.url) as client, asyncio.timeout(LIMIT_SECONDS):
            channel = await client.channel()
            await channel.basic_qos(prefetch_count=_PREFETCHED)
            await channel.basic_consume(TOPIC, take, no_ack=True)
            return Counter([_read(await arrived.get()) for _ in range(count)])


def _read(message: DeliveredMessage) -> Message:
    found = message.header.properties
    headers = [(name, str(value).encode()) for name, value in (found.headers or {}).items()]
    headers += [(f"property {name}", str(getattr(found, name)).encode()) for name in _PROPERTIES]
    return (message.routing_key or "").encode(), message.body, tuple(sorted(headers))
