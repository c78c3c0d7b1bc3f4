"""A topic of Pulsar."""

import asyncio
import http.client
from collections import Counter
from typing import Any, Final
from urllib.parse import urlsplit

import pulsar

from benchmarks.backlog import TOPIC
from benchmarks.brokers.broker import BODY, LIMIT_SECONDS, Message
from benchmarks.sides.by_hand import DEDUP
from pillarbox.servers import Pulsar

_PATH: Final = f"/admin/v2/persistent/public/default/{TOPIC}"
_DONE: Final = 204
_GONE: Final = 404
_WARM_UP: Final = 60_000


class PulsarTopic:
    """One topic without partitions; its namespace has deduplication on."""

    side: Final = "pulsar_by_hand"

    def __init__(self, server: Pulsar, *, dedup: bool) -> None:
        self._server = server
        self.url = self.address = server.url + DEDUP * dedup

    async def start_afresh(self) -> None:
        """Delete the topic with its messages and make it again."""
        await asyncio.to_thread(self._ask, "DELETE", f"{_PATH}?force=true", _DONE, _GONE)
        await asyncio.to_thread(self._ask, "PUT", _PATH, _DONE)

    async def warm_up(self) -> None:
        """Publish many messages: a broker that has just started is slower."""
        await self.start_afresh()
        await asyncio.to_thread(_warm_up, self._server.url)

    async def messages(self, count: int) -> Counter[Message]:
        """Read so many messages; their ordering keys count as headers."""
        return await asyncio.to_thread(_messages, self._server.url, count)

    def _ask(self, method: str, path: str, *fine: int) -> None:
        # Not urllib, which would ask a proxy of the environment.
        where = urlsplit(self._server.admin_url).netloc
        connection = http.client.HTTPConnection(where, timeout=LIMIT_SECONDS)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            assert answer.status in fine, (answer.status, answer.read())
        finally:
            connection.close()


def _client(url: str) -> Any:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _warm_up(url: str) -> None:
    client = _client(url)
    producer = client.create_producer(TOPIC, block_if_queue_full=True, batching_enabled=True)
    for _ in range(_WARM_UP):
        producer.send_async(BODY, _ignored)
    producer.flush()
    client.close()


def _ignored(result: object, message_id: object) -> None:
    """Wait for no single answer: the flush waits for all."""


def _messages(url: str, count: int) -> Counter[Message]:
    client = _client(url)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found: Counter[Message] = Counter()
    for _ in range(count):
        message = reader.read_next(int(LIMIT_SECONDS * 1_000))
        headers = [(name, value.encode()) for name, value in message.properties().items()]
        headers.append(("ordering key", message.ordering_key().encode()))
        found[message.partition_key().encode(), message.data(), tuple(sorted(headers))] += 1
    client.close()
    return found
