"""What RabbitMQ's answers mean for a message."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable, Unknown

if TYPE_CHECKING:
    from pillarbox.bus.rabbitmq.frames import WireMessage

_PRECONDITION_FAILED: Final = 406
_UNROUTABLE: Final = "unroutable"
_TOO_LARGE: Final = re.compile(r"message size (\d+)\D+(\d+)")
_TOPIC: Final = re.compile(r"access to topic '(.*)' in exchange ")

BLOCKED: Final = Unavailable("blocked", "the broker takes no messages: its memory or disk is low")


def invalid(part: str, problem: str) -> Refused:
    """Refuse a message that AMQP cannot carry."""
    return Refused(f"invalid-{part.replace(' ', '-')}", f"the {part} {problem}")


def too_large(size: int, limit: int) -> Refused:
    """Refuse a message over the broker's limit, which would end the channel."""
    return Refused("message-too-large", f"{size:,} bytes > {limit:,} for this broker")


def unroutable(topic: str) -> Unavailable:
    """Say that no queue is bound for the routing key of a message."""
    return Unavailable(_UNROUTABLE, "no queue is bound for this routing key", topic)


def is_unroutable(outcome: PublishOutcome) -> bool:
    """Tell whether no queue took a message."""
    return isinstance(outcome, Unavailable) and outcome.code == _UNROUTABLE


def not_taken(topic: str) -> Unavailable:
    """Say that a queue of the topic is full or has lost its leader."""
    return Unavailable("nack", "a queue did not take the message", topic)


def no_exchange(exchange: str) -> Unavailable:
    """Say that the exchange is missing."""
    return Unavailable("no-exchange", f"there is no exchange {exchange}; run `pillarbox bus apply`")


def refused_access(reason: str, topic: str | None = None) -> Unavailable:
    """Say that the user has no right to publish."""
    return Unavailable("access-refused", reason, topic)


def size_limit(code: int, reason: str) -> int | None:
    """Return the largest body that the broker takes, if it ended a channel for a larger one."""
    found = _TOO_LARGE.search(reason) if code == _PRECONDITION_FAILED else None
    return None if found is None else int(found[2])


def outcomes_of_close(
    code: int, reason: str, exchange: str, under_way: Sequence["WireMessage"]
) -> list[PublishOutcome]:
    """Class the messages that a closed channel leaves without an answer, in their order.

    RabbitMQ takes messages in order and closes at the first that it will not take. It does not say
    which one, and those before it may be stored.
    """
    lost = Unknown("channel-closed", f"the channel was closed before the broker answered: {reason}")
    match code:
        case 404:
            return [no_exchange(exchange)] * len(under_way)
        case 403:
            return _without_right(reason, under_way, lost)
        case 406:
            return _refused(code, reason, under_way, lost)
        case _:
            return [lost] * len(under_way)


def _without_right(
    reason: str, under_way: Sequence["WireMessage"], lost: Unknown
) -> list[PublishOutcome]:
    found = _TOPIC.search(reason)
    if found is None:
        return [refused_access(reason)] * len(under_way)
    return [
        refused_access(reason, message.topic) if message.routing_key == found[1] else lost
        for message in under_way
    ]


def _refused(
    code: int, reason: str, under_way: Sequence["WireMessage"], lost: Unknown
) -> list[PublishOutcome]:
    limit = size_limit(code, reason)
    if limit is None:
        # It blames a message and does not say which: they go again one by one.
        return [Refused("precondition-failed", reason, len(under_way) == 1)] * len(under_way)
    sizes = [len(message.body) for message in under_way]
    return [too_large(size, limit) if size > limit else lost for size in sizes]
