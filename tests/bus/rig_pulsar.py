"""Pulsar, read by a reader of its own client."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import pulsar

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Pulsar
from pillarbox.testing import Binding
from tests.bus.rig import LIMIT, Stored, nobody

READ_MILLIS = 20_000
TOO_LARGE = b"x" * 5_300_000


class KeptPulsar(Pulsar):
    """A Pulsar that may be killed: it keeps what no subscription waits for, and has begun to serve."""

    def __init__(self) -> None:
        kept = {"defaultRetentionTimeInMinutes": 600, "defaultRetentionSizeInMB": -1}
        super().__init__(settings=kept)

    def start(self) -> Self:
        super().start()
        client = quiet_client(self)
        client.create_producer("first").send(b"")
        client.close()
        return self


def quiet_client(server: Pulsar) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


@dataclass(frozen=True, slots=True)
class PulsarRig:
    server: Pulsar
    name: str = "pulsar"
    binding: Binding = "kafka"
    dedup: bool = False

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return PulsarMessageBus(
            address or self.server.url,
            dedup=self.dedup,
            publish_timeout=limit,
            admin_url=self.server.admin_url,
        )

    def structured_bus(self) -> MessageBus:
        return PulsarMessageBus(self.server.url, content_mode="structured", dedup=self.dedup)

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=f"pulsar://{nobody()}")

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        return message._replace(data=TOO_LARGE)

    async def read(self, topic: str) -> list[Stored]:
        return [stored(message) for message in await asyncio.to_thread(self._read, topic)]

    def _read(self, topic: str) -> list[Any]:
        client = quiet_client(self.server)
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
