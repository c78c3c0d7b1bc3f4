"""Send a message once more, as a broker or a producer does after a crash."""

import json
import os

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext

TOPIC = "orders.order"


async def send_again(order_id: str) -> int:
    """Publish a copy of an order's message; return how many there are then."""
    async with await nats.connect(os.environ["PILLARBOX_BUS_URL"]) as broker:
        stream = broker.jetstream()
        (message,) = await messages_of(stream, order_id)
        headers = dict(message.headers or {})
        del headers["Nats-Msg-Id"]  # by which NATS would drop the copy
        await stream.publish(TOPIC, message.data, headers=headers)
        return len(await messages_of(stream, order_id))


async def messages_of(stream: JetStreamContext, order_id: str) -> list[Msg]:
    name = await stream.find_stream_name_by_subject(TOPIC)
    about = await stream.stream_info(name, subjects_filter=TOPIC)
    stored = (about.state.subjects or {})[TOPIC]
    messages = await stream.subscribe(TOPIC)
    found = [await messages.next_msg(timeout=30) for _ in range(stored)]
    return [message for message in found if json.loads(message.data)["order_id"] == order_id]
