"""Kafka, read by a consumer of its own client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import admin as untyped_admin

from pillarbox.bus.kafka import KafkaMessageBus
from pillarbox.bus.message_bus import MessageBus
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import Binding, Line
from tests.bus.rig import LIMIT, ProxyLine, Stored, nobody
from tests.support.brokers import LinedKafka
from tests.support.faultproxy import FaultProxy
from tests.support.kafka_admin import TRY_SECONDS, make_topic, tell
from tests.support.waiting import until

# Between a request of many messages, which the client fills up to a megabyte, and the refused one.
TOPIC_LIMIT = 1_200_000
TOO_LARGE = b"x" * 1_500_000

_admin: Any = untyped_admin


@dataclass(frozen=True, slots=True)
class KafkaRig:
    server: LinedKafka
    name: str = "kafka"
    binding: Binding = "kafka"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return KafkaMessageBus(address or self.server.bootstrap, publish_timeout=limit)

    def structured_bus(self) -> MessageBus:
        return KafkaMessageBus(self.server.bootstrap, content_mode="structured")

    def unreachable_bus(self, *, limit: timedelta) -> MessageBus:
        return self.bus(limit=limit, address=nobody())

    @asynccontextmanager
    async def behind_a_line(self, *, limit: timedelta) -> AsyncIterator[tuple[MessageBus, Line]]:
        port = self.server.proxy_port
        async with FaultProxy(LOOPBACK, self.server.line_port, port=port) as proxy:
            bus = self.bus(limit=limit, address=f"{proxy.host}:{proxy.port}")
            yield bus, ProxyLine(proxy)
            await bus.close()

    async def refuse(self, message: MessageEnvelope) -> MessageEnvelope:
        config = {"max.message.bytes": str(TOPIC_LIMIT)}
        await asyncio.to_thread(
            make_topic, self.server.bootstrap, message.topic or "", partitions=3, config=config
        )
        return message._replace(data=TOO_LARGE)

    async def set_limit(self, topic: str, size: int) -> None:
        """Have a topic take only messages of this size."""
        value = _admin.ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=_admin.AlterConfigOpType.SET
        )
        change = _admin.ConfigResource(
            _admin.ResourceType.TOPIC, topic, incremental_configs=[value]
        )
        await self._tell(
            lambda client: client.incremental_alter_configs([change])[change].result(TRY_SECONDS)
        )

    async def forbid(self, topic: str) -> None:
        await self._change_rights("create_acls", _denied(_admin.AclBinding, topic))
        await self._until_denied(topic, denied=True)

    async def permit(self, topic: str) -> None:
        await self._change_rights("delete_acls", _denied(_admin.AclBindingFilter, topic))
        await self._until_denied(topic, denied=False)

    async def read(self, topic: str) -> list[Stored]:
        return [_stored(found) for found in await self.read_messages(topic)]

    async def read_messages(self, topic: str) -> list[Any]:
        """Return the client's own messages, which name their partition."""
        return await asyncio.to_thread(self._read, topic)

    def _read(self, topic: str) -> list[Any]:
        consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": "reader",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                # An empty answer says that the end is reached; it would come half a second later.
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            found = consumer.list_topics(topic, 20).topics[topic]
            places = [confluent_kafka.TopicPartition(topic, p, 0) for p in found.partitions]
            consumer.assign(places)
            return list(_until_end(consumer, len(places)))
        finally:
            consumer.close()

    async def _change_rights(self, how: str, rule: Any) -> None:
        def change(client: Any) -> None:
            for answer in getattr(client, how)([rule]).values():
                answer.result(TRY_SECONDS)

        await self._tell(change)

    async def _until_denied(self, topic: str, *, denied: bool) -> None:
        """Wait until the node heeds a change, which comes to it a moment later."""
        rule = _denied(_admin.AclBindingFilter, topic)

        def found(client: Any) -> bool:
            return bool(client.describe_acls(rule).result(TRY_SECONDS))

        async def heeded() -> bool:
            return await self._tell(found) is denied

        await until(heeded, "the right is changed", 60)

    async def _tell(self, ask: Callable[[Any], Any]) -> Any:
        return await asyncio.to_thread(tell, self.server.bootstrap, ask)


def _denied(kind: Any, topic: str) -> Any:
    """Say, as a rule or as a filter for it, that nobody may write to a topic."""
    return kind(
        _admin.ResourceType.TOPIC,
        topic,
        _admin.ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        _admin.AclOperation.WRITE,
        _admin.AclPermissionType.DENY,
    )


def _until_end(consumer: Any, partitions: int) -> Iterator[Any]:
    ended: set[int] = set()  # the client may tell the end of one partition twice
    while len(ended) < partitions:
        message = consumer.poll(20)
        assert message is not None, "Kafka gives no messages"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
        else:
            yield message


def _stored(message: Any) -> Stored:
    key, headers = message.key(), message.headers() or []
    return Stored(
        None if key is None else key.decode(),
        message.value(),
        {name: value.decode() for name, value in headers},
    )
