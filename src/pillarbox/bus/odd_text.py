"""Text that UTF-8 cannot hold: a lone surrogate, which JSON can name, and no wire can carry."""

from typing import Final

from pillarbox.bus.outcome import Refused
from pillarbox.event.cloudevents import binary_headers
from pillarbox.event.envelope import MessageEnvelope

# What encoders raise; a client of C++ and an encoder of JSON know no better than TypeError.
ENCODING_ERRORS: Final = (UnicodeEncodeError, TypeError)

_headers: Final = binary_headers("")


def refuse_odd_text(envelope: MessageEnvelope) -> Refused:
    """Refuse a message for its text; call it while the error of an encoder is handled.

    The error is raised again when the text is in order, since it is then a mistake of ours.
    """
    for name, text in (("key", envelope.key or ""), *_headers(envelope)):
        try:
            name.encode()
            text.encode()
        except UnicodeEncodeError:
            shown = name.encode(errors="replace").decode()
            return Refused("invalid-text", f"{shown} holds a lone surrogate, which is no text")
    raise  # noqa: PLE0704 - the caller's error
