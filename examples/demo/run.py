"""One run: start the shop's processes, play, stop them, and check what they left behind."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from examples.demo import checker
from examples.demo.crew import Crew, PartFailed
from examples.demo.customers import SHELVES, TENANTS, Customers, fill_stock
from examples.demo.databases import Database
from examples.demo.plan import Plan
from examples.demo.settings import Settings
from examples.demo.stage import Stage
from examples.demo.summary import Done, complaints, last_line
from examples.demo.troubles import Troubles
from examples.demo.view import Screen
from examples.shop.flows import CHOREOGRAPHY, SAGA
from pillarbox.servers import Server
from pillarbox.servers.ports import free_ports, is_free

PORT: Final = 8080
READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
# Processes that were killed are missed after a few seconds, so that nobody waits for the effect.
SETTINGS: Final = {
    "SHOP_PATIENCE_SECONDS": "6",
    "PILLARBOX_PROJECTOR_LEASE": "6",
    "PILLARBOX_CONSUMER_HOLD_LIMIT": "3",
    "PILLARBOX_CONSUMER_LANES": "4",
}
RECEIVERS: Final = {CHOREOGRAPHY: checker.RECEIVERS, SAGA: checker.SAGA_RECEIVERS}


@dataclass(frozen=True, slots=True)
class Ground:
    """What the shop stands on; `broker` is None when it is not the demo's own."""

    databases: Mapping[str, Database]
    bus: str
    broker: Server | None
    names: str
    begun: float

    @property
    def owners(self) -> dict[str, str]:
        return {name: found.owner for name, found in self.databases.items()}


async def run(settings: Settings, ground: Ground, folder: Path, screen: Screen) -> int:
    """Run the shop to its end; return the exit code."""
    crew = Crew(ground.databases, ground.bus, _ports(), folder, SETTINGS, flow=settings.flow)
    try:
        await asyncio.to_thread(crew.start)
        screen.say(f"starting the shop: 4 services in {len(crew.parts)} processes")
        await until_ready(crew)
        async with httpx.AsyncClient(base_url=crew.url("inventory"), timeout=30) as inventory:
            await fill_stock(inventory)
        async with httpx.AsyncClient(base_url=crew.url("orders"), timeout=30) as client:
            stage = _stage(settings, ground, crew, Customers(client), screen)
            screen.say(f"customers of {len(TENANTS)} tenants order; {stage.urls()[0]}")
            await stage.play()
    finally:
        await asyncio.to_thread(crew.stop)
    return _sum_up(settings, ground, stage)


async def until_ready(crew: Crew) -> None:
    """Wait until the four web processes answer."""
    try:
        async with httpx.AsyncClient() as client, asyncio.timeout(READY_SECONDS):
            for service in crew.webs:
                while not await _healthy(client, f"{crew.url(service)}/health"):
                    crew.check()
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        said = crew.parts[f"{service} web"].said()
        problem = f"the {service} service does not answer after {READY_SECONDS:.0f} s:\n{said}"
        raise PartFailed(problem) from None


async def _healthy(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).is_success
    except httpx.TransportError:
        return False


def _ports() -> dict[str, int]:
    ports = free_ports(["orders", "inventory", "payments", "notifications"])
    return {**ports, "orders": PORT if is_free(PORT) else ports["orders"]}


def _stage(
    settings: Settings, ground: Ground, crew: Crew, customers: Customers, screen: Screen
) -> Stage:
    plan, chance = Plan.of(settings.seconds), random.Random()  # noqa: S311 - needs no secrets
    troubles = Troubles(crew, customers, ground.broker, plan.outage, screen.say, chance)
    return Stage(ground.names, ground.owners, crew, customers, troubles, plan, screen, ground.begun)


def _sum_up(settings: Settings, ground: Ground, stage: Stage) -> int:
    """Let the checker count, print the last line, and say whether it is good."""
    result = checker.check(
        checker.read(ground.owners), stage.customers.told(), SHELVES, RECEIVERS[settings.flow]
    )
    result.findings.twice.extend(stage.customers.strange)
    done = Done(
        kills=stage.troubles.kills,
        outages=stage.troubles.outages,
        repeated_requests=stage.customers.repeated,
        repeated_messages=stage.troubles.repeated_messages,
        outage_possible=ground.broker is not None,
    )
    wrong = [*complaints(result, done)]
    for line in wrong:
        stage.screen.say(line)
    took = time.monotonic() - stage.opened
    stage.screen.say(f"from the first order to this count it took {took:.1f} s")
    first = (result.first_event_at or time.time()) - settings.started_at
    print(last_line(result, done, first), flush=True)
    return 1 if wrong else 0
