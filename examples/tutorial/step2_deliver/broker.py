"""What the broker has, seen by a client that knows nothing of Pillarbox."""

import asyncio
import json
import os

import nats


async def received(order_id: str, count: int) -> list[str]:
    """Wait for events of an order; return their subjects and types as they came."""
    found: list[str] = []
    async with asyncio.timeout(30), await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
        messages = await broker.jetstream().subscribe("orders.order")
        while len(found) < count:
            message = await messages.next_msg(timeout=30)
            if json.loads(message.data)["order_id"] == order_id:
                found.append(f"{message.subject} {(message.headers or {})['event_type']}")
    return found
