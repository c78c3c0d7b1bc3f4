"""A message of Pulsar's client as one that has come."""

from typing import Any, NamedTuple

from pillarbox.bus.subscription import Delivery
from pillarbox.event.cloudevents import CONTENT_TYPE
from pillarbox.event.incoming import Incoming


class Origin(NamedTuple):
    """What the client is told about a message, and as which of all it came."""

    consumer: Any
    message_id: Any
    arrival: int


def delivery_of(topic: str, partition: str, message: Any, origin: Origin) -> Delivery:
    """Read a message that the client received.

    Pulsar counts redeliveries that were asked for, but not those after a member's death, nor over a
    restart of the broker: a count of 0 says nothing, so each may be one.
    """
    found = origin.message_id
    position = f"{found.ledger_id()}:{found.entry_id()}:{found.batch_index()}"
    return Delivery(
        incoming(topic, partition, position, message), partition, position, True, origin
    )


def incoming(topic: str, partition: str, position: str, message: Any) -> Incoming:
    """Read a message as the bus writes it, or as anybody else does."""
    headers = _headers(message)
    return Incoming(
        topic,
        _key(message),
        headers,
        None if message.has_null_value() else message.data(),
        headers.get(CONTENT_TYPE),
        # Another partition may have the same numbers.
        f"{partition}/{position}",
    )


def _headers(message: Any) -> dict[str, str]:
    try:
        return dict(message.properties())
    except UnicodeDecodeError:
        return {}  # The client hands out all of them as text, or none.


def _key(message: Any) -> str | None:
    try:
        return message.partition_key() or None
    except UnicodeDecodeError:
        return None
