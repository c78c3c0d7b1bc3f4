"""RabbitMQ, read by a consumer of its own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.rabbitmq.settling import Settling
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import RABBITMQ
from pillarbox.servers import RabbitMq
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, ProxyLine, Stored, message, nobody
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import until

READ_SECONDS = 20
RECOVERY = 30
MOST = 65_535
LARGEST = RABBITMQ.message_max_bytes  # and the setting of the broker that the tests share
FULL = '{"max-length": 0, "overflow": "reject-publish"}'


@dataclass(frozen=True, slots=True)
class RabbitMqRig:
    server: RabbitMq
    name: str = "rabbitmq"
    binding: Binding = "amqp"
    killed: bool = False
    """Whether the server may be killed, and new queues must outlive that."""

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        url = address and f"amqp://guest:guest@{address.rpartition('/')[2]}/"
        made = quick_bus if not self.killed else RabbitMQMessageBus
        return made(url or self.server.url, publish_timeout=limit)

    def structured_bus(self) -> MessageBus:
        return quick_bus(self.server.url, content_mode="structured")

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=nobody())

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            bus = self.bus(limit=limit, address=f"{proxy.host}:{proxy.port}")
            yield bus, ProxyLine(proxy)
            await bus.close()

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        return message._replace(data=b"x" * (LARGEST + 1))

    async def forbid(self, topic: str) -> None:
        await control(self.server, "set_policy", topic, f"^{topic}$", FULL)

    async def permit(self, topic: str) -> None:
        await control(self.server, "clear_policy", topic)

    async def read(self, topic: str) -> list[Stored]:
        return [_stored(message) for message in await self.deliveries(topic)]

    async def deliveries(self, queue: str) -> list[DeliveredMessage]:
        """Take all that a queue holds; without an acknowledgement it keeps them."""
        async with aiormq.connect(self.server.url) as client:
            channel = await client.channel()
            waiting = (await channel.queue_declare(queue, passive=True)).message_count or 0
            async with asyncio.timeout(READ_SECONDS):
                return await _consumed(channel, queue, waiting)


def quick_bus(url: str, **options: Any) -> RabbitMQMessageBus:
    """Make a bus for a server that nobody kills: its new queues take messages at once."""
    made = RabbitMQMessageBus(url, **options)
    made._settling = Settling(0.0)
    return made


def elsewhere_on(server: RabbitMq) -> RabbitMQMessageBus:
    """Make a bus that makes nothing by itself, as on another machine, with an exchange of its own."""
    made = quick_bus(server.url, exchange=f"x{uuid4().hex}")
    made._makes_queues = False
    return made


async def accepts(bus: MessageBus, topic: str) -> None:
    """Wait until a topic takes messages."""

    async def accepted() -> bool:
        return [*await bus.publish([message(topic)])] == [ACCEPTED]

    await until(accepted, "messages are accepted again", RECOVERY)


async def control(server: RabbitMq, *command: str) -> None:
    """Run `rabbitmqctl` beside the loop."""
    await asyncio.to_thread(server.control, *command)


async def _consumed(channel: AbstractChannel, queue: str, count: int) -> list[DeliveredMessage]:
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

    async def take(message: DeliveredMessage) -> None:
        arrived.put_nowait(message)

    # Without this a quorum queue holds a consumer at two thousand messages.
    await channel.basic_qos(prefetch_count=MOST)
    await channel.basic_consume(queue, take)
    return [await arrived.get() for _ in range(count)]


def _stored(message: DeliveredMessage) -> Stored:
    properties = message.header.properties
    headers = {name: str(value) for name, value in (properties.headers or {}).items()}
    if properties.content_type is not None:
        headers["content-type"] = properties.content_type
    return Stored(None, message.body, headers)
