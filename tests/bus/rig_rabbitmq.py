"""RabbitMQ, read by a consumer of its own client."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.servers import RabbitMq
from tests.bus.rig import LIMIT, Stored

READ_SECONDS = 20
MOST = 65_535


@dataclass(frozen=True, slots=True)
class RabbitMqRig:
    server: RabbitMq
    name: str = "rabbitmq"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        url = address and f"amqp://guest:guest@{address.partition('://')[2]}/"
        return RabbitMQMessageBus(url or self.server.url, publish_timeout=limit)

    async def read(self, topic: str) -> list[Stored]:
        return [_stored(message) for message in await self.deliveries(topic)]

    async def deliveries(self, queue: str) -> list[DeliveredMessage]:
        """Take all that a queue holds; without an acknowledgement it keeps them."""
        async with aiormq.connect(self.server.url) as client:
            channel = await client.channel()
            waiting = (await channel.queue_declare(queue, passive=True)).message_count or 0
            async with asyncio.timeout(READ_SECONDS):
                return await _consumed(channel, queue, waiting)


async def _consumed(channel: AbstractChannel, queue: str, count: int) -> list[DeliveredMessage]:
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

    async def take(message: DeliveredMessage) -> None:
        arrived.put_nowait(message)

    # Without this a quorum queue holds a consumer at two thousand messages.
    await channel.basic_qos(prefetch_count=MOST)
    await channel.basic_consume(queue, take)
    return [await arrived.get() for _ in range(count)]


def _stored(message: DeliveredMessage) -> Stored:
    headers = message.header.properties.headers or {}
    return Stored(None, message.body, {name: str(value) for name, value in headers.items()})
