"""A consumer process in which one message kills it: run by `test_killers`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import async_sessionmaker

from pillarbox.bus.subscription import Delivery, Reception, Revoked
from pillarbox.consumer.context import Context
from pillarbox.consumer.loop import ConsumerLoop
from pillarbox.consumer.routes import Routes
from pillarbox.database import make_engine
from pillarbox.event.incoming import Incoming
from tests.consumer.rig import CONSUMER, QUICK, TOPIC, record


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
    if ctx.envelope.event_id == "killer":
        await ctx.session.flush()
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, max_crashes: int) -> None:
    engine = make_engine(url)
    routes = Routes()
    routes.add("OrderCreated", handler)
    ids = ["m0", "m1", "killer", "m2", "m3"]
    config = replace(QUICK, lanes=2, max_crashes=max_crashes)
    loop = ConsumerLoop(CONSUMER, routes, Redelivering(ids), async_sessionmaker(engine), config)
    await loop.drain()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
