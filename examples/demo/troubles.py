"""What the demo does to the shop: kills, an outage, and everything twice."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from examples.demo.crew import Crew, Part
from examples.demo.customers import TENANTS, Customers
from examples.demo.repeats import delivered, repeat_messages, until_delivered
from pillarbox.servers import Server

REQUESTS: Final = 20
MESSAGES: Final = 20
_AT_ONCE: Final = 4
_DOWN_SECONDS: Final = 1.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Troubles:
    """Make trouble, and count it. One at a time."""

    crew: Crew
    customers: Customers
    broker: Server | None
    outage_seconds: float
    say: Say
    chance: random.Random
    kills: int = 0
    outages: int = 0
    repeated_messages: int = 0
    broker_state: str = "up"
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def can_repeat(self) -> bool:
        """Tell whether so many events are delivered that there is something to repeat."""
        database = self.crew.databases["orders"].owner
        return await asyncio.to_thread(delivered, database) >= MESSAGES

    async def kill(self) -> None:
        """Kill a projector and a consumer with -9, and start them again."""
        async with self._turn:
            chosen = [self._choose("projector"), self._choose("consumer")]
            for part in chosen:
                await asyncio.to_thread(part.kill)
                self.kills += 1
            names = " and the ".join(part.name for part in chosen)
            self.say(f"killed the {names} with -9")
            await asyncio.sleep(_DOWN_SECONDS)
            for part in chosen:
                part.start()
            self.say(f"started the {names} again")

    async def stop_broker(self) -> None:
        """Take the broker away for a while; orders go on, events wait in the outboxes."""
        if self.broker is None:
            self.say("the broker is yours: it is not stopped")
            return
        async with self._turn:
            self.broker_state = "DOWN"
            self.say(f"killed the broker with -9; it stays down for {self.outage_seconds:.0f} s")
            await asyncio.to_thread(self.broker.kill)
            self.outages += 1
            await asyncio.sleep(self.outage_seconds)
            await asyncio.to_thread(self.broker.restart)
            self.broker_state = "up"
            self.say("started the broker again: what waited is delivered now")

    async def repeat(self) -> None:
        """Send requests and messages that were dealt with once more."""
        async with self._turn:
            before = self.customers.repeated
            for tenant in TENANTS:
                await self.customers.ask_at_once(tenant, self.chance, _AT_ONCE)
            await self.customers.repeat(self.chance, REQUESTS)
            again = self.customers.repeated - before
            self.say(f"sent {again} requests again: each got the order that it had made")
            database = self.crew.databases["orders"].owner
            await until_delivered(database, MESSAGES)
            copied = await repeat_messages(self.crew.bus, database, "orders", MESSAGES)
            self.repeated_messages += copied
            self.say(f"published {copied} delivered messages again, as they were")

    @property
    def all(self) -> Sequence[Callable[[], Awaitable[None]]]:
        # The outage comes last: what was killed is back by then, and finds the broker.
        return (self.kill, self.repeat, self.stop_broker)

    def _choose(self, kind: str) -> Part:
        running = [each for each in self.crew.parts.values() if each.kind == kind and each.running]
        return self.chance.choice(running)
