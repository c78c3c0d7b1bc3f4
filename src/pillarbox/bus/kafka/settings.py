"""The settings of Kafka's client: what the promise needs is ours, the rest may be changed."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from pillarbox.bus.loopback import plaintext_weakness
from pillarbox.errors import InvalidConfig

_log = logging.getLogger("pillarbox.bus.kafka")

ClientSetting = str | int | float | bool | Callable[[str], tuple[str, float]]
"""A setting of librdkafka; the only callable is `oauth_cb`, which returns a token and its end."""

# What a key's order and the durability rest on.
_FIXED: Final[Mapping[str, ClientSetting]] = {
    "acks": "all",
    "enable.idempotence": True,
    # Our own limit ends a producer as a whole: a single message that timed out would leave a gap.
    "message.timeout.ms": 0,
}
_SYNONYMS: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "delivery.timeout.ms",
        "request.required.acks",
        "enable.gapless.guarantee",
        "transactional.id",
        "logger",
        "error_cb",
        "on_delivery",
        "on_commit",
        "group.id",
        "group.protocol",
        "group.instance.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "partition.assignment.strategy",
    }
)
_DEFAULTS: Final[Mapping[str, ClientSetting]] = {
    "client.id": "pillarbox",
    # A key stays in its partition when one moves from or to Debezium.
    "partitioner": "murmur2_random",
    "batch.size": 1_000_000,
    "queue.buffering.max.kbytes": 131_072,
    # The broker judges the size; its answer is the one that counts.
    "message.max.bytes": 67_108_864,
    # Not enough replicas or no leader becomes an answer after about five seconds.
    "retries": 8,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.propagation.max.ms": 3_000,
    "socket.nagle.disable": True,
}


SHARED: Final = (
    "bootstrap.servers",
    "broker.",
    "client.id",
    "enable.ssl.",
    "oauth_cb",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)


def checked_settings(settings: Mapping[str, ClientSetting]) -> dict[str, ClientSetting]:
    """Return the caller's settings, or refuse one that would break the promise."""
    for name in settings:
        if name in _FIXED or name in _SYNONYMS:
            raise InvalidConfig(
                f"settings[{name!r}]", "is set by the bus, since order rests on it", "leave it out"
            )
    return dict(settings)


def producer_settings(
    client: Mapping[str, ClientSetting], limit: timedelta, *, gapless: bool, linger: int = 0
) -> dict[str, object]:
    """Return the settings of a producer; `gapless` ends it with its first failed message.

    `linger` is how many milliseconds it waits for more messages, unless the caller has said so.
    """
    made: dict[str, object] = {
        "request.timeout.ms": max(1, int(limit.total_seconds() * 1000)),
        "linger.ms": linger,
        **_DEFAULTS,
        **client,
        **_FIXED,
        "logger": CLIENT_LOG,
    }
    if gapless:
        made["enable.gapless.guarantee"] = True
    return made


def admin_settings(client: Mapping[str, ClientSetting]) -> dict[str, object]:
    """Return the settings of the client that looks at topics."""
    made = {name: value for name, value in client.items() if name.startswith(SHARED)}
    return {"client.id": "pillarbox", **made, "logger": CLIENT_LOG}


def exposure(client: Mapping[str, ClientSetting], *, here: bool) -> list[str]:
    """Say whether others can read along, or pass for the cluster; `here` is this machine alone."""
    if "ssl" not in str(client.get("security.protocol", "plaintext")).lower():
        remedy = "set security.protocol to ssl or sasl_ssl"
        return plaintext_weakness("the cluster", remedy, here=here)
    unverified = str(client.get("enable.ssl.certificate.verification", True)).lower() == "false"
    nameless = client.get("ssl.endpoint.identification.algorithm", "https") == "none"
    if unverified or nameless:
        return ["the cluster's certificates are not verified: anybody can pass for it"]
    return []


class _ClientLog:
    """Take the client's own log lines; the client needs no more of a logger than this."""

    def log(self, level: int, template: str, *fields: object) -> None:
        """Pass a line on for those who look closely: it repeats itself while a broker is down."""
        del level
        _log.debug(template, *fields)


CLIENT_LOG: Final = _ClientLog()
