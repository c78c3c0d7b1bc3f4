"""Look at what a namespace does to messages that wait for a consumer; every call here blocks."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from pillarbox.bus.pulsar.admin import Admin

_ALWAYS: Final = -1


def listening_weaknesses(admin: Admin, namespace: str, seconds: float) -> list[str]:
    """Say what would lose messages that wait, or have more of them come twice."""
    broker = admin.read("/brokers/configuration/runtime", seconds) or {}
    where = f"/namespaces/{quote(namespace)}"
    ttl = admin.read(f"{where}/messageTTL", seconds)
    expiry = admin.read(f"{where}/subscriptionExpirationTime", seconds)
    quotas = admin.read(f"{where}/backlogQuotaMap", seconds) or {}
    return [
        *_expiring(namespace, _known(ttl, broker.get("ttlDurationDefaultInSeconds"))),
        *_forgetting(namespace, _known(expiry, broker.get("subscriptionExpirationTimeMinutes"))),
        *_evicting(namespace, quotas),
        *_repeating(broker.get("acknowledgmentAtBatchIndexLevelEnabled")),
    ]


def lost_history(admin: Admin, topics: Sequence[str], seconds: float) -> list[str]:
    """Say which topics drop what every subscription has taken; what was dropped, nobody can see."""
    broker = admin.read("/brokers/configuration/runtime", seconds)
    default = broker and {
        "retentionTimeInMinutes": broker.get("defaultRetentionTimeInMinutes", 0),
        "retentionSizeInMB": broker.get("defaultRetentionSizeInMB", 0),
    }
    said = []
    for topic in topics:
        found = _retention(admin, topic, seconds) or default
        if not found:
            said.append(f"how long {topic} keeps what was taken cannot be seen")
            continue
        limits = int(found["retentionTimeInMinutes"]), int(found["retentionSizeInMB"])
        if limits != (_ALWAYS, _ALWAYS):
            said.append(f"{topic} keeps what was taken {_kept(*limits)}: the oldest may be gone")
    return said


def longest_redelivery(admin: Admin, topics: Sequence[str], seconds: float) -> timedelta | None:
    """Return how late a message may come again; None if that never ends, or cannot be seen."""
    longest = timedelta(0)
    for topic in topics:
        where = f"/persistent/{quote(topic)}"
        ttl = admin.read(f"{where}/messageTTL?applied=true", seconds)
        kept = kept_for(ttl, admin.read(f"{where}/retention?applied=true", seconds))
        if kept is None:
            return None
        longest = max(longest, kept)
    return longest


def kept_for(ttl: int | None, retention: Mapping[str, int] | None) -> timedelta | None:
    """Return for how long a topic has a message, taken or not; None for ever, or nobody knows.

    What is not acknowledged stays for the TTL, what is acknowledged for the retention, within which
    an operator may rewind.
    """
    if not ttl or retention is None:
        return None
    minutes, size = retention["retentionTimeInMinutes"], retention["retentionSizeInMB"]
    taken = timedelta(0) if size == 0 else timedelta(minutes=minutes)
    return None if taken < timedelta(0) else max(timedelta(seconds=ttl), taken)


def backlog(admin: Admin, topics: Sequence[str], consumer: str, seconds: float) -> int | None:
    """Count the batches that a subscription has not acknowledged; None if that cannot be seen."""
    counts = [_backlog(admin, topic, consumer, seconds) for topic in topics]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _backlog(admin: Admin, topic: str, consumer: str, seconds: float) -> int | None:
    where = f"/persistent/{quote(topic)}"
    found = admin.read(f"{where}/partitions", seconds) or {}
    stats = "partitioned-stats" if found.get("partitions") else "stats"
    # The count that costs less is an estimate.
    said = admin.read(f"{where}/{stats}?getPreciseBacklog=true", seconds) or {}
    count = said.get("subscriptions", {}).get(consumer, {}).get("msgBacklog")
    return None if count is None else int(count)


def _retention(admin: Admin, topic: str, seconds: float) -> Any:
    """Return what a topic has of its own, else its namespace."""
    namespace = quote(topic.rpartition("/")[0])
    own = admin.read(f"/persistent/{quote(topic)}/retention", seconds)
    return own or admin.read(f"/namespaces/{namespace}/retention", seconds)


def _kept(minutes: int, size: int) -> str:
    limits = [
        *([f"for {minutes:,} minutes"] if minutes != _ALWAYS else []),
        *([f"up to {size:,} MB"] if size != _ALWAYS else []),
    ]
    return " and ".join(limits)


def _known(own: Any, default: Any) -> int:
    return int(own if own is not None else default or 0)


def _expiring(namespace: str, seconds: int) -> Iterator[str]:
    if seconds > 0:
        yield (
            f"{namespace} drops messages that nobody has acknowledged for {seconds:,} s; run "
            f"`pulsar-admin namespaces set-message-ttl -ttl 0 {namespace}`"
        )


def _forgetting(namespace: str, minutes: int) -> Iterator[str]:
    if minutes > 0:
        yield (
            f"{namespace} forgets a consumer that was away for {minutes:,} minutes, with the messages "
            "that wait for it; run `pulsar-admin namespaces set-subscription-expiration-time -t 0 "
            f"{namespace}`"
        )


def _evicting(namespace: str, quotas: dict[str, dict[str, Any]]) -> Iterator[str]:
    if any(quota.get("policy") == "consumer_backlog_eviction" for quota in quotas.values()):
        yield (
            f"{namespace} drops the oldest messages when too many wait; run `pulsar-admin namespaces "
            f"set-backlog-quota -p producer_request_hold … {namespace}`"
        )


def _repeating(enabled: str | None) -> Iterator[str]:
    if enabled == "false":
        yield (
            "acknowledgmentAtBatchIndexLevelEnabled is false: a batch that was finished in part comes "
            "again as a whole when its consumer is gone, and the inbox removes what was done"
        )
