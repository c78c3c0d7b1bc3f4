"""The stage: customers order, troubles come, and somebody watches."""

import asyncio
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from examples.demo.crew import Crew
from examples.demo.customers import TENANTS, Customers
from examples.demo.figures import Figures, Looker
from examples.demo.keyboard import keys
from examples.demo.plan import Plan
from examples.demo.troubles import Troubles
from examples.demo.view import DRAW_SECONDS, Process, Rates, Scene, Screen

CUSTOMERS: Final = 2
PAUSE_SECONDS: Final = 0.5
FIRST_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.1
_KEYS: Final = "[k] kill a projector and a consumer   [b] stop the broker   [r] repeat   [q] end"


@dataclass(slots=True)
class Stage:
    """One performance, by the monotonic clock: the demo was `begun`, and orders come from `opened`."""

    names: str
    owners: Mapping[str, str]
    crew: Crew
    customers: Customers
    troubles: Troubles
    plan: Plan
    screen: Screen
    begun: float
    opened: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    keyboard: bool = False

    async def play(self) -> None:
        """Play until the time is over or somebody ends it, and on until everything is at rest."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.ended.set)
        self.screen.begin()
        self.opened = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                with keys(lambda key: self._pressed(group, key)) as self.keyboard:
                    group.create_task(self._watch())
                    await self._act(group)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            self.screen.live = False

    async def _act(self, group: asyncio.TaskGroup) -> None:
        ordering = [
            group.create_task(
                self.customers.order_on(tenant, random.Random(), PAUSE_SECONDS, self.ended)  # noqa: S311
            )
            for tenant in TENANTS
            for _ in range(CUSTOMERS)
        ]
        await self._trouble()
        await self._ended_within(self.plan.order_seconds(time.monotonic() - self.begun))
        self.ended.set()
        await asyncio.wait(ordering)
        self.closed = True
        self.screen.say("no more orders; waiting until the last one has ended")
        with suppress(TimeoutError):
            await asyncio.wait_for(self.quiet.wait(), self.plan.rest)
        self.quiet.set()

    async def _trouble(self) -> None:
        """Make each trouble once without being asked."""
        await self._first_deliveries()
        for act in self.troubles.all:
            if await self._ended_within(self.plan.pause):
                return
            await act()
        if self.keyboard:
            self.screen.say("that was everything; press a key to see it again")

    async def _first_deliveries(self) -> None:
        """Let some events through before anybody is killed, so that nobody waits to repeat them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                while not await self.troubles.can_repeat():
                    if await self._ended_within(_LOOK_SECONDS):
                        return

    async def _ended_within(self, seconds: float | None) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)
        return self.ended.is_set()

    def _pressed(self, group: asyncio.TaskGroup, key: str) -> None:
        acts = {"k": self.troubles.kill, "b": self.troubles.stop_broker, "r": self.troubles.repeat}
        if key == "q":
            self.ended.set()
        elif key in acts and not self.ended.is_set():
            group.create_task(acts[key]())

    async def _watch(self) -> None:
        """Look again and again, until everything is at rest after the last order."""
        looker, rates = Looker(self.owners), Rates()
        try:
            while not self.quiet.is_set():
                for part in self.crew.mend():
                    self.screen.say(f"the {part.name} had ended, and is started again")
                closed = self.closed
                figures = await asyncio.to_thread(looker.look)
                self.screen.show(self._scene(figures, rates))
                if closed and figures.at_rest:
                    self.quiet.set()
                await asyncio.sleep(DRAW_SECONDS)
        finally:
            looker.close()

    def _scene(self, figures: Figures, rates: Rates) -> Scene:
        now = time.monotonic()
        orders, events = rates.of(now, figures)
        parts = self.crew.parts.values()
        return Scene(
            seconds=now - self.begun,
            figures=figures,
            order_rate=orders,
            event_rate=events,
            processes=[Process(each.name, each.running, each.killed) for each in parts],
            broker=f"{self.names} ({self.troubles.broker_state})",
            notes=[*self.screen.notes],
            urls=self.urls(),
            keys=_KEYS if self.keyboard else "Ctrl-C ends it",
        )

    def urls(self) -> list[str]:
        """Return what can be opened in a browser."""
        orders, known = self.crew.url("orders"), self.customers.accepted
        found = [f"open {orders}/docs   {orders}/health"]
        if known:
            last = known[-1]
            found.append(
                f"     curl -H 'X-Tenant: {last.request.tenant}' {orders}/orders/{last.order_id}"
            )
        return found
