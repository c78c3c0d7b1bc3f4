"""Partitions by key, for brokers whose consumers have no key affinity of their own.

A topic is spread over `name.p0`, `name.p1`, …; each of them has one active consumer, so that the
events of a key are taken in order. The number comes from the hash that also makes a key's shard.
"""

from pillarbox.errors import InvalidConfig
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.shard import place_of

MAX_PARTITIONS = 1_024


def check_partitions(partitions: int | None) -> int | None:
    """Return a usable number of partitions; None sends every message to the topic itself."""
    if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidConfig(
            "partitions", f"is {partitions}", f"give 1 to {MAX_PARTITIONS:,}, or leave it out"
        )
    return partitions


def partitions_of(topic: str, partitions: int | None) -> list[str]:
    """Name the places of a topic."""
    return [topic] if partitions is None else [f"{topic}.p{at}" for at in range(partitions)]


def partition_for(envelope: MessageEnvelope, partitions: int | None) -> str:
    """Name the place where a message goes; without a key its own id decides."""
    topic = envelope.topic or ""
    if partitions is None:
        return topic
    place = place_of(envelope.tenant_id, envelope.key or envelope.event_id)
    return f"{topic}.p{place.shard_hash % partitions}"
