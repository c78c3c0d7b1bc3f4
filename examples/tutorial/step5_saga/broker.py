"""What the broker has, seen by a client that knows nothing of Pillarbox."""

import asyncio
import json
import os

import nats


async def last_word(order_id: str) -> str:
    """Wait until an order has come to its end; return the event that says so."""
    async with asyncio.timeout(60), await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
        messages = await broker.jetstream().subscribe("checkout.order")
        while True:
            message = await messages.next_msg(timeout=60)
            payload = json.loads(message.data)
            event_type = (message.headers or {})["event_type"]
            if payload["order_id"] == order_id and event_type != "OrderPlaced":
                return " ".join([event_type, payload.get("reason", "")]).strip()
