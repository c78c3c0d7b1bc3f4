"""What the broker has, seen by a client that knows nothing of Pillarbox."""

import asyncio
import json
import os

import nats


async def tenants_received(topic: str, order_id: str, count: int) -> list[str]:
    """Wait for events of an order; return the tenants that they name."""
    found: list[str] = []
    async with asyncio.timeout(30), await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
        messages = await broker.jetstream().subscribe(topic)
        while len(found) < count:
            message = await messages.next_msg(timeout=30)
            if json.loads(message.data)["order_id"] == order_id:
                found.append((message.headers or {})["tenant_id"])
    return sorted(found)
