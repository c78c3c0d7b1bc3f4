"""Other keys beside a hot key, whose handler always fails or never, in a consumer as it is by default."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from pillarbox.bus.nats import NatsMessageBus
from pillarbox.bus.subscription import SubscriptionRequest
from pillarbox.consumer.config import ConsumerConfig
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.routes import Routes
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.ids import id_maker
from pillarbox.servers import Nats

MESSAGES: Final = 2_000
BACKLOG: Final = 2_000  # more than the window
_PER_TURN: Final = 10
_TURN: Final = 0.05
_KEYS: Final = 500

_new_id = id_maker()


@dataclass(slots=True)
class Poisoned:
    """Publish messages of many keys at a steady rate, and see how long each is on its way."""

    engine: AsyncEngine
    server: Nats
    runs: int = 0
    fails: bool = False
    waited: dict[int, float] = field(default_factory=dict)
    all_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def healthy(self) -> Sequence[float]:
        """Return the 99th percentile of the way from the publisher to the handler."""
        return [await self._run(poisoned=False)]

    async def poisoned(self) -> Sequence[float]:
        """Return the same where the hot key's messages fail."""
        return [await self._run(poisoned=True)]

    async def _run(self, *, poisoned: bool) -> float:
        self.runs += 1
        self.waited, self.all_done = {}, asyncio.Event()
        self.fails = poisoned
        name = f"poison{self.runs}"
        topic = f"shop.{name}"
        bus = NatsMessageBus(self.server.url)
        await bus.start()
        routes = Routes()
        routes.add("OrderCreated", self._handle)
        loop = ConsumerLoop(
            name,
            routes,
            bus.subscribe(SubscriptionRequest(name, (topic,))),
            async_sessionmaker(self.engine, expire_on_commit=False),
            ConsumerConfig(),
        )
        await bus.publish([_message(topic, "hot", 0.0) for _ in range(BACKLOG)])
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run_forever())
            await _publish(bus, topic)
            await self.all_done.wait()
            loop.stop()
        await bus.close()
        return sorted(self.waited.values())[int(0.99 * len(self.waited))]

    async def _handle(self, order: dict[str, Any]) -> None:
        if not order["sent_at"]:
            if self.fails:
                raise ValueError("this key is poisoned")
            return
        # Called again with a batch that is done again: the last call counts.
        self.waited[order["number"]] = time.monotonic() - order["sent_at"]
        if len(self.waited) == MESSAGES:
            self.all_done.set()


async def _publish(bus: NatsMessageBus, topic: str) -> None:
    for turn in range(MESSAGES // _PER_TURN):
        began = time.monotonic()
        numbers = range(turn * _PER_TURN, (turn + 1) * _PER_TURN)
        others = [_message(topic, f"order-{n % _KEYS}", began, n) for n in numbers]
        await bus.publish([*others, *(_message(topic, "hot", 0.0) for _ in numbers)])
        await asyncio.sleep(max(_TURN - (time.monotonic() - began), 0.0))


def _message(topic: str, key: str, sent_at: float, number: int = 0) -> MessageEnvelope:
    return MessageEnvelope(
        event_id=str(_new_id()),
        event_type="OrderCreated",
        payload={"sent_at": sent_at, "number": number, "note": "x" * 300},
        topic=topic,
        key=key,
        source="shop",
    )
