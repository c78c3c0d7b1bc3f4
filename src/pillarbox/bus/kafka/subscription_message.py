"""A message of Kafka's client as the port has it."""

from typing import Any, Final

from pillarbox.bus.wire_text import wire_text
from pillarbox.event.incoming import Incoming

_CONTENT_TYPE: Final = "content-type"


def incoming(message: Any) -> Incoming:
    """Read a message; whatever a stranger has put there becomes text."""
    topic, key = message.topic(), message.key()
    headers = _headers(message)
    return Incoming(
        topic=topic,
        key=None if key is None else wire_text(key),
        headers=headers,
        body=message.value(),
        content_type=headers.get(_CONTENT_TYPE),
        message_id=f"{topic}/{message.partition()}/{message.offset()}",
    )


def _headers(message: Any) -> dict[str, str]:
    try:
        found = message.headers() or ()
    except UnicodeDecodeError:
        # The client reads no header of a message with a name that is no text; so it has no id.
        return {}
    try:
        return {name: value.decode() for name, value in found}  # the usual case, at half the cost
    except (AttributeError, UnicodeDecodeError):
        return {name: wire_text(value) for name, value in found if value is not None}
