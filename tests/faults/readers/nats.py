"""The log of NATS: all streams of JetStream, by a consumer that acknowledges nothing."""

import asyncio
from typing import Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

from tests.faults.readers.message import WAIT_SECONDS, Message

_BATCH: Final = 500


def read(url: str) -> list[Message]:
    """Read what the server holds now, each stream in its order."""
    return asyncio.run(_read(url))


async def _read(url: str) -> list[Message]:
    client = await nats.connect(url, connect_timeout=5)
    try:
        streams = await client.jetstream(timeout=WAIT_SECONDS).streams_info()
        return [message for stream in streams for message in await _read_stream(client, stream)]
    finally:
        await client.close()


async def _read_stream(client: Client, stream: StreamInfo) -> list[Message]:
    name, state = stream.config.name, stream.state
    if name is None or name.startswith("KV_") or not state.messages:
        return []
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream(timeout=WAIT_SECONDS).pull_subscribe(
        "", stream=name, config=config
    )
    found: list[Message] = []
    while len(found) < state.messages:
        left = min(_BATCH, state.messages - len(found))
        batch = await subscription.fetch(left, timeout=WAIT_SECONDS)
        found.extend(_message(name, message) for message in batch)
    await subscription.unsubscribe()
    if [message.offset for message in found] != sorted({message.offset for message in found}):
        raise RuntimeError(f"the stream {name} was not read in its order")
    return found


def _message(stream: str, message: Msg) -> Message:
    metadata, headers = message.metadata, message.headers or {}
    return Message(
        topic=message.subject,
        log=stream,
        offset=metadata.sequence.stream,
        at=metadata.timestamp.timestamp(),
        key=None,
        headers=tuple(headers.items()),
        body=message.data,
    )
