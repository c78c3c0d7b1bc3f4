"""Kafka's log: all partitions of all topics, by a consumer without a group's offsets."""

import time
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, TopicPartition

from tests.faults.readers.message import WAIT_SECONDS, Message

_BATCH: Final = 500
_MOVING: Final = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE")
_AGAIN_SECONDS: Final = 0.2


def read(bootstrap: str) -> Iterator[Message]:
    """Read what the cluster holds now, each partition in its order."""
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
    for topic, data in sorted(consumer.list_topics(timeout=WAIT_SECONDS).topics.items()):
        if not topic.startswith("__"):
            yield from ((topic, number) for number in sorted(data.partitions))


def _read_partition(consumer: Any, topic: str, number: int) -> Iterator[Message]:
    place = TopicPartition(topic, number)
    first, end = _ends(consumer, place)
    if first == end:
        return
    consumer.assign([TopicPartition(topic, number, first)])
    reached = first
    while reached < end:
        # It waits for as many as are asked for: no more than there are.
        found = consumer.consume(min(_BATCH, end - reached), timeout=WAIT_SECONDS)
        if not found:
            raise TimeoutError(f"{topic}/{number} fell silent at {reached} of {end}")
        for message in found:
            if message.error():
                raise RuntimeError(f"{topic}/{number}: {message.error()}")
            yield _message(message)
        reached = found[-1].offset() + 1
    consumer.unassign()


def _ends(consumer: Any, place: TopicPartition) -> tuple[int, int]:
    """Ask for the first and the last place, again while another node is about to lead."""
    limit = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].name() not in _MOVING or time.monotonic() > limit:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return first, end


def _message(message: Any) -> Message:
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
