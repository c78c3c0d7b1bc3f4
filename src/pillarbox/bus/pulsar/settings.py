"""The settings of Pulsar's producers: what the promise needs is ours, the rest may be changed."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pulsar import BatchingType

from pillarbox.errors import InvalidConfig

WINDOW: Final = 10_000
"""So many messages may wait for an answer at one producer."""

_FIXED: Final = frozenset(
    {
        "access_mode",
        "batching_enabled",
        "batching_type",
        "block_if_queue_full",
        "chunking_enabled",
        "initial_sequence_id",
        "max_pending_messages",
        "max_pending_messages_across_partitions",
        "message_router",
        "message_routing_mode",
        "producer_name",
        "schema",
        "topic",
    }
)
_SECOND: Final = 1_000


def checked_limit(limit: timedelta) -> timedelta:
    """Return a limit for answers, or refuse one that waits for ever."""
    if limit <= timedelta(0):
        raise InvalidConfig(
            "publish_timeout",
            "is not above 0, which to Pulsar's client means to wait for ever",
            "give the time after which a message without an answer is sent again",
        )
    return limit


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's settings of producers, or refuse one that would break the promise."""
    for name in settings:
        if name == "send_timeout_millis":
            raise InvalidConfig(
                "settings['send_timeout_millis']",
                "is set by the bus; with 0 a message would wait for ever, and its key with it",
                "use publish_timeout",
            )
        if name in _FIXED:
            raise InvalidConfig(
                f"settings[{name!r}]", "is set by the bus, since order rests on it", "leave it out"
            )
    return dict(settings)


def producer_settings(own: Mapping[str, Any], limit: timedelta, name: str | None) -> dict[str, Any]:
    """Return the settings of a producer; one with a name numbers its messages, unbatched.

    Pulsar keeps only the first number of a batch, so a batch cut differently would be stored twice.
    """
    made: dict[str, Any] = {
        "batching_max_messages": 1_000,
        "batching_max_allowed_size_in_bytes": 131_072,
        # Never reached: the bus flushes after each call.
        "batching_max_publish_delay_ms": _SECOND,
        **own,
        "send_timeout_millis": max(1, int(limit.total_seconds() * _SECOND)),
        "max_pending_messages": WINDOW,
        "max_pending_messages_across_partitions": WINDOW * 1_000,
        "batching_enabled": name is None,
        "batching_type": BatchingType.KeyBased,
    }
    return made if name is None else {**made, "producer_name": name}
