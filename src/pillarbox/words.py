"""Words of others, such as an error's text, as every database stores them, without secrets."""

import re
from typing import Final

_LONGEST: Final = 2_000
_LONGEST_CLASS: Final = 100
# Whoever writes an error must not be able to stop the loop: what is read is bounded, and read once.
_LONGEST_READ: Final = 8_000
_IN_ADDRESS: Final = re.compile(r"(://[^\s:/@]{0,256}:|\bnats://)[^\s/]{1,1024}@")
_NAMES: Final = (
    r"password|passwd|passphrase|pwd|secret|token|api[_-]?key|credentials?|authorization"
)
_NAMED: Final = re.compile(
    rf"""(?i)((?:{_NAMES})["']?\s{{0,3}}[=:]\s{{0,3}})(?:(?:bearer|basic)\s{{1,3}})?"""
    r"""(?:"[^"]*+"|'[^']*+'|[^\s,;&)\]}]++)"""
)
# What a database's error shows of the values it was about: SQLAlchemy's parameters, PostgreSQL's rows.
_VALUES: Final = re.compile(r"\n(?:\[SQL: |\[parameters: |DETAIL: |CONTEXT: )[\s\S]*+")


def words_of(value: object) -> str:
    """Return what an error says, or whatever was given for words; never raise."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - its text is the user's code
        return f"{type(value).__name__}, whose text raised {type(error).__name__}"


def storable(words: str) -> str:
    """Return words as every database stores them, not longer than a person reads, without secrets."""
    return _text(scrubbed(words)[:_LONGEST])


def scrubbed(words: str) -> str:
    """Return words without passwords in addresses, what is named as a secret, and rows' values."""
    hidden = _IN_ADDRESS.sub(r"\1***@", _VALUES.sub("", words[:_LONGEST_READ]))
    return _NAMED.sub(r"\1***", hidden)


def storable_class(name: str) -> str:
    """Return the class of an error as its column holds it."""
    return _text(name[:_LONGEST_CLASS])


def _text(words: str) -> str:
    return words.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")
