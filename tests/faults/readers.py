"""Read a broker's whole log from its beginning, with the broker's own client and nothing of ours."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import uuid4

import nats
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    TopicPartition,
)
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

_WAIT_SECONDS: Final = 20.0
_BATCH: Final = 500


class Message(NamedTuple):
    """One message as the broker stores it.

    `log` names the sequence that `offset` counts in: a partition, or a stream. `at` is the broker's
    own time of storing it.
    """

    topic: str
    log: str
    offset: int
    at: float
    key: str | None
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def read_log(bus: str) -> Iterator[Message]:
    """Read what a broker holds now, each log in its order."""
    scheme, _, address = bus.partition("://")
    match scheme:
        case "kafka":
            return _read_kafka(address.partition("?")[0].rstrip("/"))
        case "nats":
            return iter(asyncio.run(_read_nats(bus.partition("?")[0])))
        case _:
            raise ValueError(f"no reader for {scheme}")


def _read_kafka(bootstrap: str) -> Iterator[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        for topic, number in _partitions(consumer):
            yield from _read_partition(consumer, topic, number)
    finally:
        consumer.close()


def _partitions(consumer: Any) -> Iterator[tuple[str, int]]:
    for topic, data in sorted(consumer.list_topics(timeout=_WAIT_SECONDS).topics.items()):
        if not topic.startswith("__"):
            yield from ((topic, number) for number in sorted(data.partitions))


def _read_partition(consumer: Any, topic: str, number: int) -> Iterator[Message]:
    place = TopicPartition(topic, number)
    first, end = consumer.get_watermark_offsets(place, timeout=_WAIT_SECONDS)
    if first == end:
        return
    consumer.assign([TopicPartition(topic, number, first)])
    reached = first
    while reached < end:
        # It waits for as many as are asked for: no more than there are.
        found = consumer.consume(min(_BATCH, end - reached), timeout=_WAIT_SECONDS)
        if not found:
            raise TimeoutError(f"{topic}/{number} fell silent at {reached} of {end}")
        for message in found:
            if message.error():
                raise RuntimeError(f"{topic}/{number}: {message.error()}")
            yield _from_kafka(message)
        reached = found[-1].offset() + 1
    consumer.unassign()


def _from_kafka(message: Any) -> Message:
    kind, milliseconds = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise RuntimeError(f"{message.topic()} must keep the broker's time, not the sender's")
    key = message.key()
    return Message(
        topic=message.topic(),
        log=f"{message.topic()}/{message.partition()}",
        offset=message.offset(),
        at=milliseconds / 1000,
        key=None if key is None else key.decode(),
        headers=tuple((name, (value or b"").decode()) for name, value in message.headers() or ()),
        body=message.value(),
    )


async def _read_nats(url: str) -> list[Message]:
    client = await nats.connect(url, connect_timeout=5)
    try:
        streams = await client.jetstream(timeout=_WAIT_SECONDS).streams_info()
        return [message for stream in streams for message in await _read_stream(client, stream)]
    finally:
        await client.close()


async def _read_stream(client: Client, stream: StreamInfo) -> list[Message]:
    name, state = stream.config.name, stream.state
    if name is None or name.startswith("KV_") or not state.messages:
        return []
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream(timeout=_WAIT_SECONDS).pull_subscribe(
        "", stream=name, config=config
    )
    found: list[Message] = []
    while len(found) < state.messages:
        left = min(_BATCH, state.messages - len(found))
        batch = await subscription.fetch(left, timeout=_WAIT_SECONDS)
        found.extend(_from_nats(name, message) for message in batch)
    await subscription.unsubscribe()
    if [message.offset for message in found] != sorted({message.offset for message in found}):
        raise RuntimeError(f"the stream {name} was not read in its order")
    return found


def _from_nats(stream: str, message: Msg) -> Message:
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
