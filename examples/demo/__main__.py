"""Run the shop for a while, then check that events and orders agree."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.demo.shop import Base, Order, PaymentRefused, place_order
from pillarbox import OutboxRecord, Pillarbox, PillarboxError
from pillarbox.outbox import schema

CUSTOMERS = 4
DELIVERY_SECONDS = 30


@dataclass
class Tally:
    """What the customers saw."""

    orders: int = 0
    rolled_back: int = 0


@contextmanager
def server(variable: str, name: str) -> Iterator[str]:
    """Take the server that the environment names, or start one for the demo."""
    url = os.environ.get(variable)
    if url:
        yield url
        return
    from pillarbox import servers  # noqa: PLC0415 - needs the extra `dev`

    say(f"starting {name} from its wheel")
    with servers.Postgres() if name == "PostgreSQL" else servers.Nats() as started:
        yield started.url


async def customer(box: Pillarbox, number: int, tally: Tally, ended: asyncio.Event) -> None:
    """Order again and again until the demo ends."""
    chance = random.Random(number)  # noqa: S311 - a demo needs no secrets
    while not ended.is_set():
        try:
            async with box.unit_of_work() as uow:
                await place_order(uow, chance)
            tally.orders += 1
        except PaymentRefused:
            tally.rolled_back += 1


async def report(tally: Tally, ended: asyncio.Event) -> None:
    """Say every few seconds how far the shop has come."""
    while not ended.is_set():
        before = tally.orders
        try:
            await asyncio.wait_for(ended.wait(), timeout=5)
        except TimeoutError:
            rate = (tally.orders - before) / 5
            say(f"{tally.orders} orders, {tally.rolled_back} refused and rolled back, {rate:.0f}/s")


async def run(box: Pillarbox, seconds: float | None) -> Tally:
    """Let the customers order for some seconds, or until Ctrl-C."""
    tally, ended = Tally(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, ended.set)
    if seconds is not None:
        loop.call_later(seconds, ended.set)
    async with asyncio.TaskGroup() as group:
        group.create_task(report(tally, ended))
        for number in range(CUSTOMERS):
            group.create_task(customer(box, number, tally, ended))
    return tally


async def check(session: AsyncSession) -> tuple[int, int, int]:
    """Count the events, the orders without both of theirs, and the events without an order."""
    events = await session.scalar(select(func.count()).select_from(OutboxRecord)) or 0
    keys = select(OutboxRecord.key).where(OutboxRecord.aggregate_type == "Order")
    order_key = func.cast(Order.id, OutboxRecord.key.type)
    complete = keys.group_by(OutboxRecord.key).having(func.count() == 2)  # noqa: PLR2004 - placed, paid
    missing = select(func.count()).where(order_key.not_in(complete))
    ghosts = select(func.count()).where(OutboxRecord.key.not_in(select(order_key)))
    return events, await session.scalar(missing) or 0, await session.scalar(ghosts) or 0


async def delivered(session: AsyncSession) -> int:
    """Wait until every event is on the bus; return how many are."""
    waiting = select(func.count()).where(OutboxRecord.status != "SENT")
    async with asyncio.timeout(DELIVERY_SECONDS):
        while await session.scalar(waiting):
            await session.rollback()
            await asyncio.sleep(0.05)
    sent = select(func.count()).where(OutboxRecord.status == "SENT")
    return await session.scalar(sent) or 0


async def demo(database: str, bus: str, seconds: float | None) -> int:
    """Prepare the tables, run the shop and its projector, and sum up."""
    box = Pillarbox(database, bus, service="shop")
    async with box.engine.begin() as connection:
        await connection.run_sync(schema.apply)
        await connection.run_sync(Base.metadata.create_all)
    async with box.running(projector=True):
        say(f"{CUSTOMERS} customers order; each order and its events are one transaction")
        say(f"a projector in this process moves the events to {box.bus.capabilities.rules.name}")
        started = time.monotonic()
        tally = await run(box, seconds)
        took = time.monotonic() - started
        async with box.session_factory() as session:
            sent = await delivered(session)
            events, missing, ghosts = await check(session)
    print(
        f"orders={tally.orders} rolled_back={tally.rolled_back} events={events} missing={missing} "
        f"ghosts={ghosts} delivered={sent} events_per_second={events / took:.0f} "
        f"seconds={took:.0f}"
    )
    return 1 if missing or ghosts or sent != events else 0


def say(line: str) -> None:
    """Tell the person at the terminal what happens."""
    print(f"demo: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the demo; `PILLARBOX_DEMO_SECONDS` ends it by itself, else Ctrl-C does."""
    limit = os.environ.get("PILLARBOX_DEMO_SECONDS")
    try:
        with ExitStack() as stack:
            database = stack.enter_context(server("PILLARBOX_DATABASE_URL", "PostgreSQL"))
            bus = stack.enter_context(server("PILLARBOX_BUS_URL", "NATS"))
            return asyncio.run(demo(database, bus, float(limit) if limit else None))
    except PillarboxError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
