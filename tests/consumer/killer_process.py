"""A consumer process in which one message kills it: run by `test_killers`.

    python -m tests.consumer.killer_process DATABASE MAX_CRASHES [BUS ADMIN CONSUMER TOPIC]

Without a bus it has one of its own, which hands over the same messages to every process. On real
brokers it is run by `test_killing_messages`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from pillarbox.bus.subscription import (
    Delivery,
    Reception,
    Revoked,
    Subscription,
    SubscriptionRequest,
)
from pillarbox.consumer.context import Context
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.routes import Routes
from pillarbox.database import make_engine
from pillarbox.event.incoming import Incoming
from tests.consumer.rig import CONSUMER, QUICK, TOPIC, record
from tests.faults.consumers.buses import drill_bus
from tests.support.waiting import until


class Redelivering:
    """A broker that hands over the same messages to every process, as after a crash."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._left = [
            Delivery(
                Incoming(
                    TOPIC,
                    message_id,
                    {"event_id": message_id, "event_type": "OrderCreated"},
                    b'{"n":1}',
                    "application/json",
                ),
                "0",
                str(number),
                redelivered=True,
                token=None,
            )
            for number, message_id in enumerate(ids)
        ]

    @property
    def reception(self) -> Reception:
        return Reception(orders_keys=True, hand_back_limit=None, longest_redelivery=None)

    async def start(self, revoked: Revoked) -> Sequence[str]:
        del revoked
        return ()

    async def receive(self, most: int) -> Sequence[Delivery]:
        taken, self._left = self._left[:most], self._left[most:]
        if not taken:
            await asyncio.sleep(0.05)
        return taken

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Forget nothing: the next process gets all of them again."""

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Forget nothing."""

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        """Leave."""


async def handler(event: dict[str, Any], ctx: Context) -> None:
    await record(event, ctx)
    if ctx.envelope.event_id.endswith("killer"):
        await ctx.session.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def loop_of(
    engine: AsyncEngine, consumer: str, subscription: Subscription, max_crashes: int
) -> ConsumerLoop:
    routes = Routes()
    routes.add("OrderCreated", handler)
    config = replace(QUICK, lanes=2, max_crashes=max_crashes)
    return ConsumerLoop(consumer, routes, subscription, async_sessionmaker(engine), config)


async def drain(url: str, max_crashes: int) -> None:
    """Handle what a broker of our own has."""
    engine = make_engine(url)
    ids = ["m0", "m1", "killer", "m2", "m3"]
    await loop_of(engine, CONSUMER, Redelivering(ids), max_crashes).drain()
    await engine.dispose()


async def run_until_one_is_parked(
    url: str, max_crashes: int, address: str, admin: str, consumer: str, topic: str
) -> None:
    """Handle what a real broker has, until four messages are in effect and one is parked."""
    engine = make_engine(url)
    bus = drill_bus(address, admin)
    subscription = bus.subscribe(SubscriptionRequest(consumer, (topic,)))
    loop = loop_of(engine, consumer, subscription, max_crashes)

    async def all_ended() -> bool:
        async with engine.connect() as connection:
            done = await connection.scalar(_ENDED, {"consumer": consumer})
        return bool(done == ENDED)

    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run_forever())
        await until(all_ended, "all have ended", 60)
        loop.stop()
    await bus.close()
    await engine.dispose()


ENDED = 5
_ENDED = text(
    "SELECT (SELECT count(*) FROM inbox WHERE consumer = :consumer)"
    " + (SELECT count(*) FROM inbox_parked WHERE consumer = :consumer AND state = 'parked')"
)


def main(url: str, max_crashes: str, *broker: str) -> None:
    if broker:
        address, admin, consumer, topic = broker
        asyncio.run(run_until_one_is_parked(url, int(max_crashes), address, admin, consumer, topic))
    else:
        asyncio.run(drain(url, int(max_crashes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
