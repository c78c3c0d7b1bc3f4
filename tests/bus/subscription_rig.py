"""What the rigs of subscriptions share."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.outcome import ACCEPTED
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.servers import Server
from pillarbox.testing import SubscriptionRig
from tests.support.faultproxy import FaultProxy, Freeze
from tests.support.waiting import until


async def publish_all(bus: MessageBus, messages: Sequence[MessageEnvelope]) -> None:
    """Publish by a bus that is closed afterwards; wait for a broker that has just come back."""
    left = list(messages)

    async def accepted() -> bool:
        outcomes = await bus.publish(left)
        left[:] = [m for m, said in zip(left, outcomes, strict=True) if said != ACCEPTED]
        return not left

    try:
        await until(accepted, "the messages are accepted", limit=60)
    finally:
        await bus.close()


@dataclass(frozen=True, slots=True)
class ProxyMemberLine:
    """A member's line through a proxy."""

    proxy: FaultProxy

    def cut(self) -> None:
        self.proxy.now(Freeze())

    def mend(self) -> None:
        self.proxy.thaw()


@dataclass(frozen=True, slots=True)
class OwnSubscriptionRig:
    """A rig whose server may be killed."""

    server: Server
    shared: SubscriptionRig

    @property
    def name(self) -> str:
        return self.shared.name

    def subscription(self, request: SubscriptionRequest) -> Subscription:
        return self.shared.subscription(request)

    async def prepare(self, request: SubscriptionRequest) -> None:
        await self.shared.prepare(request)

    async def publish(self, messages: Sequence[MessageEnvelope]) -> None:
        await self.shared.publish(messages)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def freeze(self) -> None:
        self.server.freeze()

    async def thaw(self) -> None:
        self.server.thaw()
