"""Other keys beside a hot key whose handler always fails, in one consumer with its own settings."""

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
BACKLOG: Final = 5_000
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
    waited: list[float] = field(default_factory=list)
    all_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def alone(self) -> Sequence[float]:
        """Return the 99th percentile of the way from the publisher to the handler."""
        return [await self._run(poisoned=False)]

    async def beside(self) -> Sequence[float]:
        """Return the same beside a key with more messages than the window, and new ones as often."""
        return [await self._run(poisoned=True)]

    async def _run(self, *, poisoned: bool) -> float:
        self.runs += 1
        self.waited, self.all_done = [], asyncio.Event()
        topic = f"shop.poison{self.runs}"
        bus = NatsMessageBus(self.server.url)
        await bus.start()
        routes = Routes()
        routes.add("OrderCreated", self._handle)
        loop = ConsumerLoop(
            "poison",
            routes,
            bus.subscribe(SubscriptionRequest(f"poison{self.runs}", (topic,))),
            async_sessionmaker(self.engine, expire_on_commit=False),
            ConsumerConfig(),
        )
        hot = BACKLOG if poisoned else 0
        await bus.publish([_message(topic, "hot", 0) for _ in range(hot)])
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run_forever())
            await _publish(bus, topic, poisoned=poisoned)
            await self.all_done.wait()
            loop.stop()
        await bus.close()
        return sorted(self.waited)[int(0.99 * len(self.waited))]

    async def _handle(self, order: dict[str, Any]) -> None:
        if not order["sent_at"]:
            raise ValueError("this key is poisoned")
        self.waited.append(time.monotonic() - order["sent_at"])
        if len(self.waited) == MESSAGES:
            self.all_done.set()


async def _publish(bus: NatsMessageBus, topic: str, *, poisoned: bool) -> None:
    for turn in range(MESSAGES // _PER_TURN):
        began = time.monotonic()
        keys = [f"order-{(turn * _PER_TURN + n) % _KEYS}" for n in range(_PER_TURN)]
        hot = [_message(topic, "hot", 0) for _ in range(_PER_TURN if poisoned else 0)]
        await bus.publish([*(_message(topic, key, began) for key in keys), *hot])
        await asyncio.sleep(max(_TURN - (time.monotonic() - began), 0.0))


def _message(topic: str, key: str, sent_at: float) -> MessageEnvelope:
    return MessageEnvelope(
        event_id=str(_new_id()),
        event_type="OrderCreated",
        payload={"sent_at": sent_at, "note": "x" * 300},
        topic=topic,
        key=key,
        source="shop",
    )
