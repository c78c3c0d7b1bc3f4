"""A message of nats-py as the port has it."""

from typing import Final

from nats.aio.msg import Msg

from pillarbox.bus.nats.subscription_lane import Arrival, Lane
from pillarbox.bus.subscription import Delivery
from pillarbox.event.incoming import Incoming

_PIN: Final = "Nats-Pin-Id"


def arrival(message: Msg, lane: Lane) -> Arrival:
    """Read a message that JetStream delivered."""
    found = message.metadata
    sequence, durable = found.sequence.stream, lane.durable
    headers = dict(message.headers or {})
    pin = headers.pop(_PIN, None)
    incoming = Incoming(
        topic=durable.topic,
        key=None,
        headers=headers,
        body=message.data,
        content_type=headers.get("Content-Type") or headers.get("content-type"),
        message_id=f"{durable.stream}/{sequence}",
    )
    delivery = Delivery(
        incoming, durable.subject, str(sequence), found.num_delivered > 1, (lane, sequence)
    )
    return Arrival(delivery, sequence, found.sequence.consumer, message.reply, pin)
