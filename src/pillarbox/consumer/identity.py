"""Texts of foreign messages, as the tables can store them; and the messages, made of them again."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, overload

from sqlalchemy import Row

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.routes import Prepared
from pillarbox.event.incoming import Incoming, Unreadable
from pillarbox.inbox.identity import stored_id

_PLACE: Final = "at:"
_TEXTS: Final = ("topic", "key", "content_type", "message_id")


@overload
def stored_text(text: str, longest: int) -> str: ...
@overload
def stored_text(text: str | None, longest: int) -> str | None: ...
def stored_text(text: str | None, longest: int) -> str | None:
    """Return a text for a person, without what no database stores, cut to its column."""
    if text is None:
        return None
    return text.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")[:longest]


def message_id_of(delivery: Delivery, content: Prepared | Unreadable) -> str:
    """Return the id under which the tables know a message; its place and all it says, without one.

    The place alone would not do: not every broker has one, and a topic that is made anew counts
    from the start. Two messages of one such id are equal, and a row of the one keeps the other.
    """
    if isinstance(content, Prepared):
        return stored_id(content.envelope.event_id)
    found = delivery.message
    said = (found.key, sorted(found.headers.items()), found.content_type, found.message_id)
    place = repr((found.topic, delivery.partition, delivery.position, said))
    digest = sha256(place.encode("utf-8", "surrogatepass"))
    digest.update(b"" if found.body is None else b"\0" + found.body)
    return _PLACE + digest.hexdigest()


def original_of(
    message: Incoming, columns: Mapping[str, str | None]
) -> dict[str, str | None] | None:
    """Return what a message says otherwise than the columns of its row; None if they say it all.

    Without it a key that was cut would be another one, and a message whose only id is its broker's
    would have none.
    """
    said = {name: getattr(message, name) for name in _TEXTS}
    if message.message_id is None:
        del said["message_id"]  # the row's own stands for it
    return {
        name: text
        for name, text in said.items()
        if text != columns[name] or (name == "message_id" and text.startswith(_PLACE))
    } or None


def message_from(row: Row[Any]) -> Incoming:
    """Return a message as it came, from its row."""
    known = None if row.message_id.startswith(_PLACE) else row.message_id
    found = Incoming(row.topic, row.key, row.headers, row.body, row.content_type, known)
    return found._replace(**(row.original or {}))
