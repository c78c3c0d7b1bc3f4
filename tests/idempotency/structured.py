"""RFC 9651, section 4.2, word for word: an item that is a string, with parameters.

One thing is left out: whether the bytes of a display string are UTF-8.
"""

from string import ascii_letters, ascii_lowercase, digits
from typing import Final

_KEY: Final = ascii_lowercase + digits + "_-.*"
_TOKEN: Final = ascii_letters + digits + "!#$%&'*+-.^_`|~:/"
_BASE64: Final = ascii_letters + digits + "+/="
_HEX: Final = "0123456789abcdef"
_VISIBLE: Final = "".join(map(chr, range(0x20, 0x7F)))
_WHOLE, _BEFORE_POINT, _AFTER_POINT = 15, 12, 3


class Malformed(Exception):
    """Parsing fails."""


class Input:
    """Characters that are consumed one after the other."""

    def __init__(self, text: str) -> None:
        self._left = list(reversed(text))

    @property
    def next(self) -> str:
        return self._left[-1] if self._left else ""

    def take(self, among: str) -> str:
        if not self.next or self.next not in among:
            raise Malformed
        return self._left.pop()

    def take_all(self, among: str) -> str:
        found = ""
        while self.next and self.next in among:
            found += self._left.pop()
        return found


def string_item(text: str) -> str:
    """Return the string of an item; its parameters are only checked."""
    left = Input(text.strip(" "))
    found = _string(left)
    while left.next == ";":
        left.take(";")
        left.take_all(" ")
        left.take(ascii_lowercase + "*")
        left.take_all(_KEY)
        if left.next == "=":
            left.take("=")
            _bare_item(left)
    if left.next:
        raise Malformed
    return found


def _bare_item(left: Input) -> None:
    match left.next:
        case '"':
            _string(left)
        case ":":
            left.take(":")
            left.take_all(_BASE64)
            left.take(":")
        case "?":
            left.take("?")
            left.take("01")
        case "@":
            left.take("@")
            if "." in _number(left):
                raise Malformed
        case "%":
            _display_string(left)
        case first if first in "-" + digits:
            _number(left)
        case _:
            left.take(ascii_letters + "*")
            left.take_all(_TOKEN)


def _string(left: Input) -> str:
    left.take('"')
    found = ""
    while (character := left.take(_VISIBLE)) != '"':
        found += left.take('"\\') if character == "\\" else character
    return found


def _display_string(left: Input) -> None:
    left.take("%")
    left.take('"')
    while (character := left.take(_VISIBLE)) != '"':
        if character == "%":
            left.take(_HEX)
            left.take(_HEX)


def _number(left: Input) -> str:
    if left.next == "-":
        left.take("-")
    whole = left.take(digits) + left.take_all(digits)
    if left.next != ".":
        if len(whole) > _WHOLE:
            raise Malformed
        return whole
    left.take(".")
    fraction = left.take(digits) + left.take_all(digits)
    if len(whole) > _BEFORE_POINT or len(fraction) > _AFTER_POINT:
        raise Malformed
    return f"{whole}.{fraction}"
