"""The exact walk over a payload: every value is looked at, every refusal names its path."""

import json
import math
from collections.abc import Iterable
from typing import Final, NoReturn

from pillarbox.errors import InvalidEvent, PayloadNotJson, PayloadNotUnicode, PayloadTooDeep
from pillarbox.event.encoders import (
    FINITE_REMEDY,
    JSON_TYPES,
    MAX_DEPTH,
    Encoder,
    Encoders,
    PayloadLimits,
)

MAX_INT: Final = 2**63 - 1
_MAX_ENCODINGS: Final = 8
_MAX_SHOWN_STEPS: Final = 16
_MAX_SHOWN_KEY: Final = 64


class Walk:
    """One exact pass over a payload, which knows the path it stands on."""

    __slots__ = ("_encoders", "_limits", "_open", "_steps", "met_big_int")

    def __init__(self, limits: PayloadLimits, encoders: Encoders) -> None:
        self._limits, self._encoders = limits, encoders
        self._open: set[int] = set()
        self._steps: list[str | int] = []
        self.met_big_int = False

    def run(self, value: object) -> object:
        """Return the value made of plain JSON types only."""
        try:
            return self._value(value)
        except RecursionError:
            raise PayloadTooDeep(*TOO_DEEP_FOR_STACK) from None

    def apply(self, encode: Encoder, value: object) -> object:
        """Call an encoder and give its refusal the path."""
        return encoded(value, encode, self._steps)

    def _value(self, value: object) -> object:
        plain = value
        for _ in range(_MAX_ENCODINGS):
            if type(plain) in JSON_TYPES:
                break
            plain = self.apply(self._encoder(plain), plain)
        else:
            self._refuse(
                f"of type {type_name(value)} is encoded without end",
                "let its encoder return plain JSON values",
            )
        if isinstance(plain, dict | list | tuple):
            return self._container(value, plain)
        self._check_scalar(plain)
        return plain

    def _encoder(self, value: object) -> Encoder:
        encode = self._encoders.find(type(value))
        if encode is None:
            self._refuse(f"has the type {type_name(value)}, which JSON lacks", _remedy_for(value))
        return encode

    def _container(
        self, owner: object, plain: dict[object, object] | list[object] | tuple[object, ...]
    ) -> object:
        if id(owner) in self._open:
            self._refuse("contains itself", "send the id of the object instead of the object")
        if len(self._open) >= self._limits.depth:
            raise PayloadTooDeep(
                _path(self._steps),
                f"is nested deeper than {self._limits.depth} levels",
                f"flatten it, or raise PayloadLimits.depth (at most {MAX_DEPTH})",
            )
        self._open.add(id(owner))
        names = self._names(plain) if isinstance(plain, dict) else None
        values = []
        for place, item in enumerate(plain.values() if isinstance(plain, dict) else plain):
            self._steps.append(place if names is None else names[place])
            values.append(self._value(item))
            self._steps.pop()
        self._open.discard(id(owner))
        return values if names is None else dict(zip(names, values, strict=True))

    def _names(self, plain: dict[object, object]) -> list[str]:
        # Keys can differ as objects and be one text: a str subclass may define its own equality.
        names: dict[str, None] = {}
        for key in plain:
            if not isinstance(key, str):
                self._refuse(f"has a key of type {type_name(key)}", "make every key a str")
            self._check_text(key, "has a key with")
            names[str.__str__(key)] = None
        if len(names) < len(plain):
            self._refuse("has two keys that are the same text", "keep one of them")
        return list(names)

    def _check_scalar(self, value: object) -> None:
        if isinstance(value, str):
            self._check_text(value, "holds")
        elif isinstance(value, float) and not math.isfinite(value):
            self._refuse("is NaN" if math.isnan(value) else "is Infinity", FINITE_REMEDY)
        elif isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
            self._check_big_int(value)

    def _check_text(self, text: str, verb: str) -> None:
        if "\0" in text:
            self._refuse(f"{verb} a NUL character", "remove it, or send the content as bytes")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PayloadNotUnicode(
                _path(self._steps),
                f"{verb} a lone surrogate",
                "decode the text with its true encoding, or send the content as bytes",
            ) from None

    def _check_big_int(self, value: int) -> None:
        if not self._limits.allow_big_int:
            self._refuse(
                "is an integer beyond ±(2^63-1)",
                "send it as a string, or allow it with PayloadLimits(allow_big_int=True)",
            )
        try:
            str(value)
        except ValueError:
            self._refuse("is an integer with more digits than Python writes", "send it as bytes")
        self.met_big_int = True

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        raise PayloadNotJson(_path(self._steps), problem, remedy) from None


def encoded(value: object, encode: Encoder, steps: Iterable[str | int] = ()) -> object:
    """Call an encoder; a refusal has the path of the value, and any other error is one."""
    try:
        return encode(value)
    except InvalidEvent as error:
        plain = type(error).__init__ is InvalidEvent.__init__
        kind = type(error) if plain else PayloadNotJson
        raise kind(_path(steps), error.problem, error.remedy) from error.__cause__
    except Exception as error:
        raise PayloadNotJson(
            _path(steps),
            f"of type {type_name(value)} could not be encoded ({type_name(error)})",
            "see the cause, or pass plain JSON values",
        ) from error


TOO_DEEP_FOR_STACK: Final = (
    "payload",
    "is nested deeper than the stack of this call allows",
    "flatten it, or encode it nearer to the top of the program",
)


def _path(steps: Iterable[str | int]) -> str:
    shown = [_step(step) for step in steps]
    if len(shown) > _MAX_SHOWN_STEPS:
        shown[_MAX_SHOWN_STEPS:] = ["…"]
    return "payload" + "".join(shown)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    short = step if len(step) <= _MAX_SHOWN_KEY else step[:_MAX_SHOWN_KEY] + "…"
    return f".{short}" if short.isidentifier() and short.isascii() else f"[{json.dumps(short)}]"


def type_name(value: object) -> str:
    """Name a value's type for a message, which must not show the value."""
    return type(value).__qualname__


def _remedy_for(value: object) -> str:
    if isinstance(value, set | frozenset):
        return "pass a sorted list, since a set has no order"
    if isinstance(value, tuple):
        return "pass its _asdict() or a list"
    return "pass a str, number, list or dict, or an encoder for the type"
