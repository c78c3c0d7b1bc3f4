"""Read the header Idempotency-Key.

The IETF draft wants a string as RFC 9651 writes it, in quotes. Many clients send the key bare, so a
plain token is taken as well; both forms name the same key.
"""

import re
from collections.abc import Sequence
from typing import Final

from pillarbox.idempotency.errors import IdempotencyKeyInvalid

HEADER: Final = "Idempotency-Key"
LIMIT: Final = 255

# A key of characters that are all escaped fits twice: the rest is for parameters.
HEADER_LIMIT: Final = 1_024

# It is read before anybody is asked who sends it. So every repetition is possessive, which makes it
# linear: what was read once is not read again in another way.
_STRING: Final = r'"(?:[ !#-\[\]-~]|\\["\\])*+"'
_NUMBER: Final = r"-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})"
_WORD: Final = r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*+"
_DISPLAYED: Final = r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*+"'
_VALUE: Final = (
    rf"{_STRING}|{_NUMBER}|{_WORD}|:[A-Za-z0-9+/=]*+:|\?[01]|@-?[0-9]{{1,15}}|{_DISPLAYED}"
)
# Parameters after the string are allowed by RFC 9651, and mean nothing here.
_PARAMETER: Final = rf";[ ]*+[a-z*][a-z0-9_.*-]*+(?:=(?>{_VALUE}))?+"
_QUOTED: Final = re.compile(rf"({_STRING})(?:{_PARAMETER})*+")
_BARE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~:/=-]++")
_ESCAPED: Final = re.compile(r"\\(.)")


def parse_key(values: Sequence[bytes]) -> str | None:
    """Return the key of a request; None if it has none, an error if it has no single one."""
    if not values:
        return None
    if len(values) > 1:
        raise IdempotencyKeyInvalid("is sent more than once")
    found = _unwrapped(values[0])
    if not found:
        raise IdempotencyKeyInvalid("is empty")
    if len(found) > LIMIT:
        raise IdempotencyKeyInvalid(f"has {len(found):,} characters")
    return found


def _unwrapped(value: bytes) -> str:
    if len(value) > HEADER_LIMIT:
        raise IdempotencyKeyInvalid(f"has {len(value):,} characters")
    if not value.isascii():
        raise IdempotencyKeyInvalid("is not ASCII")
    text = value.decode("ascii").strip(" \t")
    if not text.isprintable():
        raise IdempotencyKeyInvalid("holds control characters")
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted[1][1:-1])
    if text and _BARE.fullmatch(text) is None:
        raise IdempotencyKeyInvalid("is neither a quoted string nor a plain token")
    return text
