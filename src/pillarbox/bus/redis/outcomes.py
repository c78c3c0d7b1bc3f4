"""What Redis' answers mean for a message, as data: by the first word, which no version changes."""

from typing import Final

import redis.exceptions

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable, Unknown

NIL: Final = b"$-1"
_ERROR: Final = 0x2D  # -
_PROTOCOL: Final = "Protocol error"
_TOO_LONG: Final = "invalid bulk length"
_BROKEN: Final = "protocol-error"

# The whole server takes no messages; nothing was stored.
_BUS_UNAVAILABLE: Final = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOAUTH",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "WRONGPASS",
    }
)
# Another connection may find a server that is writable, or credentials that are valid again.
_WORN_OUT: Final = frozenset({"LOADING", "MASTERDOWN", "NOAUTH", "READONLY", "WRONGPASS", _BROKEN})
_CODES: Final = (
    (redis.exceptions.AuthenticationError, "unauthorised"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
)


def outcome_of(answer: bytes, topic: str | None) -> PublishOutcome:
    """Class the answer to an XADD: an id, an error, or nothing for a stream that is missing."""
    if answer == NIL:
        return no_stream(topic)
    if not answer or answer[0] != _ERROR:
        return ACCEPTED
    code, _, reason = answer[1:].decode(errors="replace").partition(" ")
    if reason.startswith(_PROTOCOL):
        too_long = _TOO_LONG in reason
        return Refused("message-too-large", reason) if too_long else Unavailable(_BROKEN, reason)
    if code in _BUS_UNAVAILABLE or (code == "NOPERM" and " key" not in reason):
        return Unavailable(code, reason)
    # An error to an XADD has stored nothing: the stream's key is another thing, forbidden, or moved.
    return Unavailable(code, reason, topic)


def is_worn_out(outcome: PublishOutcome) -> bool:
    """Tell whether a new connection may do better than the one that gave this answer."""
    match outcome:
        case Unavailable(code):
            return code in _WORN_OUT
        case Refused():
            return True  # The server ends the connection after a protocol error.
        case _:
            return False


def unreachable(error: Exception) -> Unavailable:
    """Say that no connection could be had."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Unavailable(code, reason_of(error))
    return Unavailable("unreachable", reason_of(error))


def reason_of(error: Exception) -> str:
    """Return what an error says, or what its kind means."""
    if isinstance(error, TimeoutError):
        return "nobody answered within the limit"
    return str(error) or type(error).__name__


def no_stream(topic: str | None) -> Unavailable:
    """Say that the topic's stream is missing and may not be made by itself."""
    return Unavailable("no-stream", "the stream is missing; `pillarbox bus apply` makes it", topic)


def too_large(size: int, limit: int) -> Refused:
    """Refuse a message over the limit, which would end the connection."""
    return Refused("message-too-large", f"{size:,} bytes > {limit:,}")


def replicas_missing(found: int, wanted: int) -> Unavailable:
    """Say that too few replicas are there to begin with."""
    return Unavailable("replicas-missing", f"{found} of {wanted} replicas answer")


def not_replicated(wanted: int) -> Unknown:
    """Say that a message is stored, and on too few replicas within the limit."""
    return Unknown("not-replicated", f"fewer than {wanted} replicas have acknowledged it in time")
