"""NATS for the rig."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import nats
from nats.js.api import StreamConfig

from pillarbox.servers import Nats
from tests.faults.brokers.ground import Ground
from tests.faults.readers import nats as reader
from tests.faults.workload import TOPICS


@contextmanager
def serve() -> Iterator[Ground]:
    """Run a server with one stream for all topics."""
    with Nats() as server:
        asyncio.run(_make_stream(server.url))
        yield Ground(server, partial(reader.read, server.url))


async def _make_stream(url: str) -> None:
    client = await nats.connect(url)
    try:
        await client.jetstream().add_stream(StreamConfig(name="faults", subjects=list(TOPICS)))
    finally:
        await client.close()
