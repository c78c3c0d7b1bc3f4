"""Members of consumers on Redis: with a reader for each partition, or all on one stream."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis as Client

from pillarbox.bus.partition import partitions_of
from pillarbox.bus.redis import RedisMessageBus
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Redis
from pillarbox.servers.ports import LOOPBACK
from pillarbox.testing import MemberLine, RawMessage
from tests.bus.rig import LIMIT, nobody
from tests.bus.subscription_rig import ProxyMemberLine, publish_all
from tests.support.faultproxy import FaultProxy

PARTITIONS = 4
PATIENCE = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class SharedRedisSubscriptionRig:
    server: Redis
    name: str = "redis, shared"
    partitions: int | None = None

    def bus(self, *, address: str | None = None, limit: timedelta = LIMIT) -> RedisMessageBus:
        url = self.server.url if address is None else f"redis://{address}"
        return RedisMessageBus(
            url, partitions=self.partitions, member_timeout=PATIENCE, publish_timeout=limit
        )

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self.bus().subscribe(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        """Do nothing: a stream keeps what nobody has read."""

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await publish_all(self.bus(), messages)

    async def publish_raw(self, topic: str, messages: Sequence[RawMessage]) -> None:
        async with Client.from_url(self.server.url) as client:
            for raw in messages:
                named: Any = {"data": raw.body, "key": raw.key, **raw.headers}
                fields = {name: value for name, value in named.items() if value is not None}
                stream = partitions_of(topic, self.partitions)[0]
                await client.xadd(stream, fields or {"nothing": b""})

    async def rewind(self, request: SubscriptionRequest) -> None:
        async with Client.from_url(self.server.url) as client:
            for topic in request.topics:
                for stream in partitions_of(topic, self.partitions):
                    await client.xgroup_setid(stream, request.consumer, "0-0")

    def hurried(self, request: SubscriptionRequest) -> tuple[Subscription, timedelta]:
        return self.subscription(request), PATIENCE

    def unreachable(self, request: SubscriptionRequest) -> Subscription:
        return self.bus(address=nobody(), limit=timedelta(seconds=3)).subscribe(request)


@dataclass(frozen=True, slots=True)
class RedisSubscriptionRig(SharedRedisSubscriptionRig):
    name: str = "redis"
    partitions: int | None = PARTITIONS

    @asynccontextmanager
    async def behind_a_line(
        self, request: SubscriptionRequest
    ) -> AsyncIterator[tuple[Subscription, MemberLine]]:
        async with FaultProxy(LOOPBACK, self.server.port) as proxy:
            made = self.bus(address=f"{proxy.host}:{proxy.port}").subscribe(request)
            yield made, ProxyMemberLine(proxy)
            await made.close()
