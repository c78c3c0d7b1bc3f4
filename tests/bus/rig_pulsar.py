"""Pulsar, read by a reader of its own client."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pulsar

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.servers import Pulsar
from tests.bus.rig import LIMIT, Stored

READ_MILLIS = 20_000


@dataclass(frozen=True, slots=True)
class PulsarRig:
    server: Pulsar
    name: str = "pulsar"
    dedup: bool = False

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        url = self.server.url if address is None else f"pulsar://{address.rpartition('/')[2]}"
        return PulsarMessageBus(
            url, dedup=self.dedup, publish_timeout=limit, admin_url=self.server.admin_url
        )

    async def read(self, topic: str) -> list[Stored]:
        return [stored(message) for message in await asyncio.to_thread(self._read, topic)]

    async def messages(self, topic: str) -> list[Any]:
        return await asyncio.to_thread(self._read, topic)

    def _read(self, topic: str) -> list[Any]:
        client = pulsar.Client(
            self.server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            return list(_until_end(reader))
        finally:
            client.close()


def _until_end(reader: Any) -> Iterator[Any]:
    while reader.has_message_available():
        yield reader.read_next(READ_MILLIS)


def stored(message: Any) -> Stored:
    return Stored(message.partition_key() or None, message.data(), message.properties())
