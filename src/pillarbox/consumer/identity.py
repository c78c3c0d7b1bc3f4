"""Texts of foreign messages, as the tables can store them."""

from hashlib import sha256
from typing import Final, overload

from pillarbox.bus.subscription import Delivery
from pillarbox.consumer.routes import Prepared
from pillarbox.event.incoming import Unreadable
from pillarbox.inbox.identity import stored_id

_PLACE: Final = "at:"


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


def is_place(message_id: str) -> bool:
    """Tell whether an id is only the place where the message was found."""
    return message_id.startswith(_PLACE)
