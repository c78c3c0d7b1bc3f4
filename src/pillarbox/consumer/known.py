"""Messages that the table has already, and whether they are what comes again under their ids."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pillarbox.consumer.lane import InHand
from pillarbox.event.attributes import Flawed
from pillarbox.event.content import is_cloudevent, whole_event
from pillarbox.event.incoming import DEFAULT_RULES


class Stored(NamedTuple):
    """What a row keeps of a message's content."""

    message_id: str
    content_type: str | None
    body: bytes | None


class Known:
    """The messages of some ids that have rows; an id with two contents has two."""

    def __init__(self, rows: Iterable[Stored]) -> None:
        self._rows: dict[str, list[Stored]] = {}
        for row in rows:
            self._rows.setdefault(row.message_id, []).append(row)

    def has(self, item: InHand) -> bool:
        """Say whether the table has this message."""
        return any(_is_same(_stored(item), row) for row in self._rows.get(item.message_id, ()))

    def has_another(self, item: InHand) -> bool:
        """Say whether it has a message under the same id, and none with this content."""
        return item.message_id in self._rows and not self.has(item)

    def add(self, item: InHand) -> None:
        """Note that it has this message too."""
        self._rows.setdefault(item.message_id, []).append(_stored(item))


class Seen(NamedTuple):
    """What the table has that concerns some messages: keys that are held, and messages."""

    held: Collection[str]
    known: Known


def _stored(item: InHand) -> Stored:
    message = item.delivery.message
    return Stored(item.message_id, message.content_type, message.body)


def _is_same(one: Stored, other: Stored) -> bool:
    return (one.body or b"") == (other.body or b"") or _data(one) == _data(other)


def _data(stored: Stored) -> bytes | None:
    """Return the content as the inbox compares it: of a whole event, without its attributes."""
    try:
        if is_cloudevent(stored.content_type):
            return whole_event(stored.body, stored.content_type or "", DEFAULT_RULES)[1].data
    except Flawed:
        pass
    return stored.body
