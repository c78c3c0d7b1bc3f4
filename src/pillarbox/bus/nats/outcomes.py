"""What JetStream's answers mean for a message."""

import json
from typing import Final

from pillarbox.bus.outcome import ACCEPTED, PublishOutcome, Refused, Unavailable

# Codes of JetStream's API that blame the message itself.
_REFUSED: Final = {
    10054: "message-too-large",
    10097: "headers-too-large",
}
_NO_STREAM: Final = "no-stream"


def outcome_of(answer: bytes, topic: str) -> PublishOutcome:
    """Class the answer to a publication; without content nobody listens for the subject."""
    if b'"error"' not in answer:
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


def no_stream(topic: str) -> Unavailable:
    """Say that no stream keeps messages of this topic."""
    return Unavailable(_NO_STREAM, "no stream takes this subject", topic)
