"""Pulsar, read by a reader of its own client."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import pulsar

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.pulsar import PulsarMessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Pulsar
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, ProxyLine, Stored, nobody
from tests.support.brokers import LinedPulsar
from tests.support.faultproxy import FaultProxy

READ_MILLIS = 20_000
TOO_LARGE = b"x" * 5_300_000


class KeptPulsar(LinedPulsar):
    """A Pulsar that may be killed: it keeps what no subscription waits for, and has begun to serve."""

    def __init__(self) -> None:
        kept = {"defaultRetentionTimeInMinutes": 600, "defaultRetentionSizeInMB": -1}
        super().__init__(settings=kept)

    def start(self) -> Self:
        super().start()
        self._serve_first()
        return self

    def restart(self) -> None:
        super().restart()
        self._serve_first()

    def _serve_first(self) -> None:
        client = quiet_client(self)
        client.create_producer("first").send(b"")
        client.close()


def quiet_client(server: Pulsar, **options: Any) -> pulsar.Client:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(server.url, logger=logger, **options)


@dataclass(frozen=True, slots=True)
class PulsarRig:
    server: LinedPulsar
    name: str = "pulsar"
    binding: Binding = "kafka"
    dedup: bool = False
    _holders: dict[str, pulsar.Client] = field(default_factory=dict)

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return self._bus(address or self.server.url, limit)

    def _bus(self, address: str, limit: timedelta, **options: str) -> MessageBus:
        return PulsarMessageBus(
            address,
            dedup=self.dedup,
            publish_timeout=limit,
            admin_url=self.server.admin_url,
            options=options,
        )

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        port = self.server.proxy_port
        async with FaultProxy(LOOPBACK, self.server.port, port=port) as proxy:
            bus = self._bus(f"pulsar://{proxy.host}:{port}", limit, listener_name="line")
            yield bus, ProxyLine(proxy)
            await bus.close()

    def structured_bus(self) -> MessageBus:
        return PulsarMessageBus(self.server.url, content_mode="structured", dedup=self.dedup)

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=f"pulsar://{nobody()}")

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        return message._replace(data=TOO_LARGE)

    async def forbid(self, topic: str) -> None:
        """Take the topic for a producer that suffers no other."""
        self._holders[topic] = client = quiet_client(self.server)
        alone = pulsar.ProducerAccessMode.ExclusiveWithFencing
        await asyncio.to_thread(client.create_producer, topic, access_mode=alone)

    async def permit(self, topic: str) -> None:
        await asyncio.to_thread(self._holders.pop(topic).close)

    async def read(self, topic: str) -> list[Stored]:
        client = quiet_client(self.server)
        return [stored(found) for found in await asyncio.to_thread(read_topic, client, topic)]


def read_topic(client: pulsar.Client, topic: str) -> list[Any]:
    """Return all messages of a topic, and close the client."""
    try:
        return list(_until_end(client.create_reader(topic, pulsar.MessageId.earliest)))
    finally:
        client.close()


def _until_end(reader: Any) -> Iterator[Any]:
    while reader.has_message_available():
        yield reader.read_next(READ_MILLIS)


def stored(message: Any) -> Stored:
    return Stored(message.partition_key() or None, message.data(), message.properties())
