"""Tell the broker of the shop's topics and consumers, once, before the first event.

python -m examples.shop.subscribe choreography

Brokers that keep messages only for consumers that they know then keep them from the first one on.
In a deployment each service does so for itself: `pillarbox bus apply --app …`.
"""

import asyncio
import importlib
import sys

from examples.shop.flows import CONSUMERS, TOPICS
from pillarbox import Pillarbox
from pillarbox.bus.subscription import PreparingBus


async def subscribe(flow: str) -> None:
    """Make the topics, and what the consumers read from."""
    found = [importlib.import_module(module) for module in CONSUMERS[flow].values()]
    boxes: list[Pillarbox] = [module.box for module in found]
    bus = boxes[0].bus
    try:
        await bus.apply(TOPICS[flow])
        if isinstance(bus, PreparingBus):
            known = [made.request for box in boxes for made in box.consumers.values()]
            await bus.prepare(known)
    finally:
        await bus.close()


if __name__ == "__main__":
    asyncio.run(subscribe(sys.argv[1]))
