"""What Kafka's errors mean for a message, as data: by their names, which no version changes."""

from typing import Final

from confluent_kafka import KafkaError

from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable, Unknown

# The message itself is at fault; it was not stored.
_REFUSED: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_MSG",
        "INVALID_MSG_SIZE",
        "INVALID_TIMESTAMP",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
)
# The topic cannot take messages now; nothing was stored.
_TOPIC_UNAVAILABLE: Final = frozenset(
    {
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
        "NOT_ENOUGH_REPLICAS",
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "POLICY_VIOLATION",
        "KAFKA_STORAGE_ERROR",
        "UNSUPPORTED_COMPRESSION_TYPE",
    }
)
# The whole cluster does not serve this client; nothing was stored.
_BUS_UNAVAILABLE: Final = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_AUTHENTICATION",
        "_SSL",
        "_RESOLVE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "THROTTLING_QUOTA_EXCEEDED",
    }
)


def outcome_of(error: KafkaError, topic: str | None, *, alone: bool) -> PublishOutcome:
    """Class an error; a message that did not travel `alone` may share a neighbour's refusal."""
    name, reason = error.name(), error.str()
    if name in _REFUSED:
        return Refused(name, reason, certain=alone)
    if name in _TOPIC_UNAVAILABLE:
        return Unavailable(name, reason, topic)
    if name in _BUS_UNAVAILABLE:
        return Unavailable(name, reason)
    return Unknown(name, reason)
