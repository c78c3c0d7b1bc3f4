"""What the results of Pulsar's client mean for a message, as data: by their names."""

from typing import Final

from pillarbox.bus.handover import DISCONNECTED
from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable, Unknown

# The message itself is at fault; it was not stored.
_REFUSED: Final = frozenset({"MessageTooBig", "InvalidMessage", "CryptoError"})
# The topic cannot take messages now; nothing was stored.
_TOPIC_UNAVAILABLE: Final = frozenset(
    {
        "AuthorizationError",
        "BrokerMetadataError",
        "IncompatibleSchema",
        "InvalidTopicName",
        "NotAllowedError",
        "ProducerBlockedQuotaExceededError",
        "ProducerBlockedQuotaExceededException",
        "ProducerBusy",
        "ProducerFenced",
        "ProducerQueueIsFull",
        "ServiceUnitNotReady",
        "TopicNotFound",
        "TopicTerminated",
    }
)
# The whole cluster does not serve this client; nothing was stored.
_BUS_UNAVAILABLE: Final = frozenset(
    {
        "AuthenticationError",
        "ErrorGettingAuthenticationData",
        "InvalidUrl",
        "LookupError",
        "MemoryBufferIsFull",
        "TooManyLookupRequestException",
        "UnsupportedVersionError",
    }
)
_BROKEN: Final = frozenset({"AlreadyClosed", "ConnectError", "NotConnected", "ReadError"})


def outcome_of(result: str, topic: str) -> PublishOutcome:
    """Class the answer to one message by the name of its result."""
    if result == "Ok":
        return ACCEPTED
    if result in _REFUSED:
        return Refused(result, f"Pulsar refuses the message: {result}")
    if result in _BROKEN:
        return DISCONNECTED
    found = _unavailable(result, f"Pulsar answers {result}", topic)
    return found or Unknown(result, f"Pulsar answers {result}")


def not_opened(error: Exception, topic: str) -> Unavailable:
    """Class the failure to open a producer: nothing was sent."""
    result, reason = type(error).__name__, str(error) or type(error).__name__
    return _unavailable(result, reason, topic) or Unavailable(result, reason)


def _unavailable(result: str, reason: str, topic: str) -> Unavailable | None:
    if result in _TOPIC_UNAVAILABLE:
        return Unavailable(result, reason, topic)
    return Unavailable(result, reason) if result in _BUS_UNAVAILABLE else None
