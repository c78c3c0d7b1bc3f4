"""Pulsar's log: each topic by a reader, and the broker's times from its admin interface."""

import http.client
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from typing import Any, Final, NamedTuple

import pulsar

from tests.faults.readers.message import WAIT_SECONDS, Message

_TIME: Final = "X-Pulsar-Broker-Entry-METADATA-timestamp"
_THREADS: Final = 4


class Entry(NamedTuple):
    """A batch of messages, as the bookies store it."""

    topic: str
    ledger: int
    number: int


def read(url: str, admin: str, topics: Sequence[str]) -> list[Message]:
    """Read what topics without partitions hold now, each in its order.

    A message carries its sender's time. Where a key stands in one topic alone its place there tells
    its order, and that time is as good as any; for the other keys the broker's is asked for, entry
    by entry.
    """
    found = [pair for topic in topics for pair in _read_topic(url, topic)]
    topics_of = defaultdict(set)
    for entry, message in found:
        topics_of[message.key].add(entry.topic)
    asked = {entry for entry, message in found if len(topics_of[message.key]) > 1}
    times = _times(admin, sorted(asked))
    return [message._replace(at=times.get(entry, message.at)) for entry, message in found]


def _read_topic(url: str, topic: str) -> Iterator[tuple[Entry, Message]]:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        offset = 0
        while reader.has_message_available():
            message = reader.read_next(int(WAIT_SECONDS * 1000))
            place = message.message_id()
            entry = Entry(topic, place.ledger_id(), place.entry_id())
            yield entry, _message(topic, offset, message)
            offset += 1
    finally:
        client.close()


def _message(topic: str, offset: int, message: Any) -> Message:
    return Message(
        topic=topic,
        log=topic,
        offset=offset,
        at=message.publish_timestamp() / 1000,
        key=message.partition_key() or None,
        headers=tuple(message.properties().items()),
        body=message.data(),
    )


def _times(admin: str, entries: Sequence[Entry]) -> dict[Entry, float]:
    """Ask the broker when it has stored entries, over a few connections at a time."""
    parts = [entries[start::_THREADS] for start in range(_THREADS)]
    with ThreadPoolExecutor(_THREADS) as threads:
        answers = threads.map(lambda part: [*_ask(admin, part)], parts)
        return {entry: at for part in answers for entry, at in part}


def _ask(admin: str, entries: Iterable[Entry]) -> Iterator[tuple[Entry, float]]:
    host = admin.partition("://")[2]
    with closing(http.client.HTTPConnection(host, timeout=WAIT_SECONDS)) as connection:
        for entry in entries:
            topic, ledger, number = entry
            path = f"/admin/v2/persistent/public/default/{topic}/ledger/{ledger}/entry/{number}"
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            said = answer.getheader(_TIME)
            if said is None:
                raise RuntimeError(f"{topic} must keep the broker's time: {answer.status} {path}")
            yield entry, datetime.fromisoformat(said).timestamp()
