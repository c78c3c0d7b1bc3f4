"""Entries of a stream as messages that have come, and which of them are in our hands."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pillarbox.bus.redis.entries import header_of
from pillarbox.bus.subscription import Delivery
from pillarbox.event.cloudevents import CONTENT_TYPE
from pillarbox.event.incoming import Incoming

_BODY: Final = b"data"
_KEY: Final = b"key"


class Origin(NamedTuple):
    """Where an entry stands, and as which of all it came to us."""

    stream: str
    entry: str
    arrival: int


class Hands:
    """Know what is in our hands: read from a group, and neither acknowledged nor lost."""

    def __init__(self) -> None:
        self._held: dict[str, set[str]] = {}
        self._arrivals = 0

    def take(
        self, topic: str, stream: str, entries: Iterable[Any], *, redelivered: bool
    ) -> list[Delivery]:
        """Return the deliveries of entries that are not here yet, in their order.

        An entry that was deleted while somebody had it comes without fields, and is passed over.
        """
        held = self._held.setdefault(stream, set())
        made = []
        for found in entries:
            if found is None or found[1] is None:
                continue
            entry = found[0].decode()
            if entry in held:
                continue
            held.add(entry)
            self._arrivals += 1
            origin = Origin(stream, entry, self._arrivals)
            message = incoming(topic, stream, entry, found[1])
            made.append(Delivery(message, stream, entry, redelivered, origin))
        return made

    def let_go(self, stream: str, entries: Iterable[str]) -> None:
        """Forget entries that are finished."""
        self._held.get(stream, set()).difference_update(entries)

    def drop(self, stream: str) -> None:
        """Forget everything of a stream."""
        self._held.pop(stream, None)

    def of(self, stream: str) -> list[str]:
        """Return the entries of a stream that are here."""
        return [*self._held.get(stream, ())]


def incoming(topic: str, stream: str, entry: str, fields: Sequence[bytes]) -> Incoming:
    """Read an entry as the bus writes it, or as anybody else does."""
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    body, key = found.pop(_BODY, None), found.pop(_KEY, None)
    headers = {header_of(_text(name)): _text(value) for name, value in found.items()}
    return Incoming(
        topic,
        None if key is None else _text(key),
        headers,
        body,
        headers.get(CONTENT_TYPE),
        # Another stream may have an entry with the same number.
        f"{stream}/{entry}",
    )


def _text(value: bytes) -> str:
    # Two that are no text stay different.
    return value.decode(errors="backslashreplace")
