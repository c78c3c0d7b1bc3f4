"""Publish to Redis Streams."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Final

from redis.exceptions import RedisError

from pillarbox.bus.handover import NO_ANSWER
from pillarbox.bus.loopback import all_loopback
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.bus.partition import check_partitions, partitions_of
from pillarbox.bus.redis.address import Address
from pillarbox.bus.redis.connections import Connections
from pillarbox.bus.redis.entries import Entries
from pillarbox.bus.redis.exchange import Exchange
from pillarbox.bus.redis.outcomes import reason_of, unreachable
from pillarbox.bus.redis.streams import Streams
from pillarbox.bus.redis.subscription import Access, RedisSubscription
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.errors import BusUnreachable, InvalidConfig
from pillarbox.event.cloudevents import ContentMode
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import REDIS, check_topic

_ANSWER_BY: Final = 0.9  # of the limit, so that `publish` has returned when it is over
_REACH_BY: Final = 0.4
_FAILURES: Final = (TimeoutError, OSError, RedisError)
_SHORTEST_TIMEOUT: Final = timedelta(seconds=1)


class RedisMessageBus:
    """Publish to Redis Streams, one stream for each topic.

        bus = RedisMessageBus("redis://localhost:6379/0")

    `options` are those of redis-py's connections, for security and tuning. With `partitions` a topic
    is spread over that many streams by key. Nothing is trimmed, unless `max_length` says about how
    many entries a stream keeps. With `replicas` a message is accepted once that many have it. Missing
    streams are made by `apply`, and by themselves when the server is on this machine.

    It can be listened to as well: with `partitions` each stream has one reading member of a consumer
    at a time, so that the messages of a key come in order. A member that is silent for
    `member_timeout` loses what it has to others.
    """

    def __init__(
        self,
        url: str,
        *,
        partitions: int | None = None,
        max_length: int | None = None,
        replicas: int = 0,
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        member_timeout: timedelta = timedelta(seconds=15),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._seconds = publish_timeout.total_seconds()
        self._address = Address(url, options or {}, self._seconds * _REACH_BY)
        self._partitions = check_partitions(partitions)
        self._max_length = max_length
        self._replicas = replicas
        if replicas < 0:
            raise InvalidConfig("replicas", f"is {replicas}", "give 0 or more")
        if max_length is not None and max_length < 1:
            raise InvalidConfig("max_length", f"is {max_length}", "give 1 or more, or leave it out")
        if member_timeout < _SHORTEST_TIMEOUT:
            raise InvalidConfig(
                "member_timeout", f"is {member_timeout}", f"give {_SHORTEST_TIMEOUT} or more"
            )
        self._member_timeout = member_timeout
        self._makes_streams = all_loopback([self._address.host])
        self._entries = Entries(
            partitions=partitions,
            max_length=max_length,
            makes_streams=self._makes_streams,
            content_mode=content_mode,
        )
        self._capabilities = Capabilities(REDIS, publish_timeout)
        self._connections = Connections(self._address.connection, self._seconds * _REACH_BY)

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    async def start(self) -> Sequence[str]:
        """Connect; return what would lose acknowledged events."""
        said = self._address.weaknesses()
        if self._max_length is not None:
            said.append(
                f"max_length is {self._max_length:,}: older events are removed, read or not"
            )
        try:
            async with asyncio.timeout(self._seconds), self._streams() as streams:
                return [*said, *await streams.weaknesses(self._replicas)]
        except _FAILURES as error:
            raise BusUnreachable(self._address.shown, reason_of(error)) from error

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand over a batch; the outcomes come in the same order."""
        deadline = asyncio.get_running_loop().time() + self._seconds * _ANSWER_BY
        if not one_by_one:
            return await self._publish(batch, deadline)

        async def publish_alone(message: MessageEnvelope) -> PublishOutcome:
            return (await self._publish((message,), deadline))[0]

        return await publish_one_by_one(batch, deadline, publish_alone)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create the streams that are missing."""
        try:
            async with asyncio.timeout(self._seconds), self._streams() as streams:
                return await streams.create(topics)
        except _FAILURES as error:
            raise BusUnreachable(self._address.shown, reason_of(error)) from error

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say which streams do not hold all of their entries."""
        try:
            async with asyncio.timeout(self._seconds), self._streams() as streams:
                return await streams.forgotten(topics)
        except _FAILURES as error:
            raise BusUnreachable(self._address.shown, reason_of(error)) from error

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make one member of a consumer group; it has connections of its own."""
        access = Access(
            self._address.connection,
            self.start,
            self._address.shown,
            self._makes_streams,
            self._seconds,
        )
        topics = {
            stream: topic
            for topic in request.topics
            for stream in partitions_of(check_topic(topic, REDIS), self._partitions)
        }
        return RedisSubscription(
            access,
            request.consumer,
            topics,
            leased=self._partitions is not None,
            member_timeout=self._member_timeout,
        )

    async def close(self) -> None:
        """Disconnect; messages without an answer are unknown."""
        await self._connections.close()

    async def _publish(
        self, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        if not batch:
            return []
        exchange = Exchange(batch, self._entries, self._replicas, deadline)
        try:
            async with asyncio.timeout_at(deadline), self._connections.lent() as connection:
                await exchange.run(connection)
        except _FAILURES as error:
            if not exchange.begun:
                return [unreachable(error)] * len(batch)
            return exchange.outcomes(NO_ANSWER if isinstance(error, TimeoutError) else None)
        return exchange.outcomes()

    def _streams(self) -> AbstractAsyncContextManager[Streams]:
        return Streams.reached(self._address.connection, self._partitions)
