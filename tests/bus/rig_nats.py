"""NATS JetStream, read by a consumer of its own client."""

from dataclasses import dataclass
from datetime import timedelta

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from pillarbox.bus.message_bus import MessageBus
from pillarbox.bus.nats import NatsMessageBus
from pillarbox.servers import Nats
from tests.bus.rig import LIMIT, Stored


@dataclass(frozen=True, slots=True)
class NatsRig:
    server: Nats
    name: str = "nats"

    def bus(self, *, limit: timedelta = LIMIT, address: str | None = None) -> MessageBus:
        return NatsMessageBus(address or self.server.url, publish_timeout=limit)

    async def read(self, topic: str) -> list[Stored]:
        client = await nats.connect(self.server.url)
        try:
            stream = client.jetstream()
            # Without acknowledgements a consumer is not held at a thousand messages.
            unacknowledged = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await stream.pull_subscribe(topic, config=unacknowledged)
            waiting = (await reader.consumer_info()).num_pending
            messages = await reader.fetch(waiting, timeout=20) if waiting else []
            return [Stored(None, m.data, dict(m.headers or {})) for m in messages]
        finally:
            await client.close()
