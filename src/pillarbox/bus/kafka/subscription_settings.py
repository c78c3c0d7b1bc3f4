"""The settings of Kafka's client as a member of a group."""

from collections.abc import Mapping
from typing import Final

from pillarbox.bus.kafka.settings import CLIENT_LOG, SHARED, ClientSetting

_FIXED: Final[Mapping[str, ClientSetting]] = {
    # Positions are ours: they follow the database's commits.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A group without a position, or with one that is gone, misses nothing that is still there.
    "auto.offset.reset": "earliest",
    # Members that keep a partition work on while others come and go.
    "partition.assignment.strategy": "cooperative-sticky",
    # A transaction ends with a mark that is no message: only the client sees that it was passed.
    "enable.partition.eof": True,
}
_DEFAULTS: Final[Mapping[str, ClientSetting]] = {
    "client.id": "pillarbox",
    # A member that died is missed after this long; heartbeats do not wait for handlers.
    "session.timeout.ms": 10_000,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 32_768,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    # A topic that is made later is found within this time.
    "topic.metadata.refresh.interval.ms": 30_000,
}
_RECEIVING: Final = (
    "client.rack",
    "fetch.",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.poll.interval.ms",
    "queued.",
    "reconnect.",
    "session.timeout.ms",
    "topic.metadata.refresh.",
)


def consumer_settings(client: Mapping[str, ClientSetting], group: str) -> dict[str, object]:
    """Return the settings of a member; those that only a producer knows are left out."""
    allowed = (*SHARED, *_RECEIVING)
    own = {name: value for name, value in client.items() if name.startswith(allowed)}
    return {**_DEFAULTS, **own, **_FIXED, "group.id": group, "logger": CLIENT_LOG}
