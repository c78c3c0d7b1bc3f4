"""Envelopes as messages of Pulsar's client."""

from typing import Any, Final
from zlib import crc32

import _pulsar

from pillarbox.bus.pulsar.producer import Build
from pillarbox.event.cloudevents import (
    ContentMode,
    binary_headers,
    is_structured,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope

GROUPS: Final = 16
_NAMES: Final = tuple(f"g{at}" for at in range(GROUPS))

_headers: Final = binary_headers("ce_")


def group_of(envelope: MessageEnvelope) -> str:
    """Return the group of keys that may share a batch; without a key the event's id decides."""
    return _NAMES[crc32((envelope.key or envelope.event_id).encode()) % GROUPS]


def builder(mode: ContentMode, *, grouped: bool) -> Build:
    """Make the function that writes an envelope as a message.

    The key is the partition key. A batch goes to one Key_Shared consumer as a whole, so it may hold
    only keys that belong to the same one. A batch per key would be a batch per message, and slower
    than none: `grouped` names a group of keys as the ordering key, which decides on both.
    """
    message: Any = _pulsar.MessageBuilder

    def build(envelope: MessageEnvelope) -> Any:
        made = message()
        if is_structured(envelope, mode):
            body, headers = structured_body(envelope), structured_headers(envelope)
            made.content(body)
        else:
            found, headers = envelope.body(), _headers(envelope)
            if found is None:
                made.set_null_value()
            else:
                made.content(found)
        made.properties(dict(headers))
        if envelope.key is not None:
            made.partition_key(envelope.key)
        if grouped:
            made.ordering_key(group_of(envelope))
        return made

    return build
