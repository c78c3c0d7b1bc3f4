"""The log of RabbitMQ: one queue that is bound to all topics, so that it has one order for all.

Reading takes the messages out of the queue.
"""

import asyncio
from typing import Final

import aiormq
from aiormq.abc import DeliveredMessage

from tests.faults.readers.message import WAIT_SECONDS, Message

# A quorum queue gives a consumer no more than this before it hears of the first ones.
_BATCH: Final = 1_000


def read(url: str, queue: str) -> list[Message]:
    """Take all that the queue holds now, in its order."""
    return asyncio.run(_read(url, queue))


async def _read(url: str, queue: str) -> list[Message]:
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
    async with aiormq.connect(url) as client:
        channel = await client.channel()
        waiting = (await channel.queue_declare(queue, passive=True)).message_count or 0
        await channel.basic_qos(prefetch_count=_BATCH)

        async def take(message: DeliveredMessage) -> None:
            arrived.put_nowait(message)

        await channel.basic_consume(queue, take)
        found: list[Message] = []
        while len(found) < waiting:
            async with asyncio.timeout(WAIT_SECONDS):
                delivered = await arrived.get()
            found.append(_message(queue, len(found), delivered))
            if arrived.empty() and delivered.delivery_tag is not None:
                await channel.basic_ack(delivered.delivery_tag, multiple=True)
        return found


def _message(queue: str, offset: int, message: DeliveredMessage) -> Message:
    properties = message.header.properties
    headers = {name: str(value) for name, value in (properties.headers or {}).items()}
    return Message(
        topic=message.routing_key or "",
        log=queue,
        offset=offset,
        at=0.0,  # RabbitMQ keeps no time of storing
        key=None,
        headers=tuple(headers.items()),
        body=message.body,
    )
