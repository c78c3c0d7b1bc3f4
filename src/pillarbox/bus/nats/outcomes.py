"""What JetStream's answers mean for a message."""

import json
import re
from typing import Final

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable

# Codes of JetStream's API that blame the message itself.
_REFUSED: Final = {
    10054: "message-too-large",
    10097: "headers-too-large",
}
_NO_STREAM: Final = "no-stream"
# Only a field has a colon behind its name; a stream may be called `error`.
_ERROR: Final = b'"error":'
_DENIED: Final = re.compile(r'permissions violation for publish to "(.*)"', re.IGNORECASE)


def outcome_of(answer: bytes, topic: str) -> PublishOutcome:
    """Class the answer to a publication; without content nobody listens for the subject."""
    if _ERROR not in answer:
        return ACCEPTED if b'"stream"' in answer else no_stream(topic)
    try:
        error = json.loads(answer)["error"]
        code, reason = int(error.get("err_code", 0)), str(error.get("description", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return no_stream(topic)
    if code in _REFUSED:
        return Refused(_REFUSED[code], reason)
    return Unavailable(f"jetstream-{code}", reason, topic)


def too_large(size: int, limit: int) -> Refused:
    """Refuse a message over the server's limit, which would end the connection."""
    return Refused("message-too-large", f"{size:,} bytes with headers > {limit:,} for this server")


def denied_subject(error: str) -> str | None:
    """Return the subject to which the server forbids to publish, if that is what it says."""
    found = _DENIED.search(error)
    return None if found is None else found[1]


def denied(topic: str) -> Unavailable:
    """Say that the user has no right to publish to this topic."""
    return Unavailable("access-refused", "the user may not publish to this subject", topic)


def no_stream(topic: str) -> Unavailable:
    """Say that no stream keeps messages of this topic."""
    return Unavailable(_NO_STREAM, "no stream takes this subject", topic)
