"""A message of RabbitMQ as one that has come."""

from typing import Final, NamedTuple, cast

from aiormq.abc import DeliveredMessage
from pamqp import commands

from pillarbox.bus.rabbitmq.subscription_channel import QueueChannel
from pillarbox.bus.subscription import Delivery
from pillarbox.event.cloudevents import CONTENT_TYPE
from pillarbox.event.incoming import Incoming

# What a quorum queue adds when it delivers again, and counts on.
_COUNTS: Final = frozenset({"x-delivery-count", "x-acquired-count"})


class Origin(NamedTuple):
    """The channel and the number by which a message came, and as which of all it came."""

    channel: QueueChannel
    number: int
    arrival: int


def delivery_of(
    topic: str, channel: QueueChannel, message: DeliveredMessage, arrival: int
) -> Delivery:
    """Read a message that a queue delivered.

    It has no position: a delivery tag counts on one channel, and begins anew on the next.
    """
    frame = cast("commands.Basic.Deliver", message.delivery)
    number = frame.delivery_tag or 0
    return Delivery(
        incoming(topic, message),
        channel.queue,
        "",
        bool(frame.redelivered),
        Origin(channel, number, arrival),
    )


def incoming(topic: str, message: DeliveredMessage) -> Incoming:
    """Read a message as the bus writes it, or as anybody else does.

    AMQP has no key; ours stands among the headers. Without a content type an empty body is none.
    """
    properties = message.header.properties
    media_type = properties.content_type
    headers = {
        name: _text(value)
        for name, value in (properties.headers or {}).items()
        if name not in _COUNTS
    }
    if media_type is not None:
        headers[CONTENT_TYPE] = media_type
    body = None if media_type is None and not message.body else message.body
    return Incoming(topic, None, headers, body, media_type, properties.message_id)


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        # Two that are no text stay different.
        return value.decode(errors="backslashreplace")
    return str(value)
