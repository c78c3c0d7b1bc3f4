"""RabbitMQ for the rig."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import aiormq

from pillarbox.servers import RabbitMq
from tests.faults.brokers.ground import Ground
from tests.faults.readers import rabbitmq as reader

_EXCHANGE: Final = "events"
_ALL: Final = "all-of-it"


@contextmanager
def serve() -> Iterator[Ground]:
    """Run a node with a queue that gets everything; the bus makes one for each topic beside it."""
    with RabbitMq() as server:
        asyncio.run(_make_queue(server.url))
        yield Ground(server, partial(reader.read, server.url, _ALL))


async def _make_queue(url: str) -> None:
    async with aiormq.connect(url) as client:
        channel = await client.channel()
        await channel.exchange_declare(_EXCHANGE, exchange_type="topic", durable=True)
        await channel.queue_declare(_ALL, durable=True, arguments={"x-queue-type": "quorum"})
        await channel.queue_bind(_ALL, _EXCHANGE, "#")
