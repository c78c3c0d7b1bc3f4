"""Words of others, such as an error's text, as every database stores them."""

from typing import Final

_LONGEST: Final = 4_000
_LONGEST_CLASS: Final = 100


def storable(words: str) -> str:
    """Return words as every database stores them, not longer than a person reads."""
    return _text(words[:_LONGEST])


def storable_class(name: str) -> str:
    """Return the class of an error as its column holds it."""
    return _text(name[:_LONGEST_CLASS])


def _text(words: str) -> str:
    return words.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")
