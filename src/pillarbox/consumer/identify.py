"""Ids for the messages of producers that send none."""

from pillarbox.event.incoming import Incoming
from pillarbox.inbox.identity import content_id


def by_content(message: Incoming) -> str:
    """Make an id of a message's topic, key and body, as `identify=` of a consumer.

    Two messages that are equal on purpose become one, so use it only where that cannot be.
    """
    return content_id(f"{message.topic}\0{message.key or ''}", message.body or b"")
