"""Where a producer has a footing: the partitions that have stored a message of it.

A broker finds a gap in a producer's messages by their numbers. Until it has stored one, it takes any
number as the first: if the very first message is refused, those behind it would be stored.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pillarbox.event.envelope import MessageEnvelope

_REMEMBERED: Final = 10_000


class Footing:
    """Name the messages that must be stored before others of their key are sent.

    `partitions` tells how many a topic has; once each has stored something, the topic is firm.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions
        self._reached: dict[str, set[int]] = {}
        self._firm: set[str | None] = set()
        self._keys: set[tuple[str | None, str]] = set()

    def firsts(self, batch: Sequence[MessageEnvelope]) -> list[int]:
        """Return the place of the first message of each key that may be new to its partition."""
        if self._firm.issuperset({message.topic for message in batch}):
            return []
        places: dict[tuple[str | None, str], int] = {}
        for place, message in enumerate(batch):
            if message.key is not None and message.topic not in self._firm:
                places.setdefault((message.topic, message.key), place)
        return [place for key, place in places.items() if key not in self._keys]

    def stored(self, topic: str | None, key: str | None, partition: int) -> None:
        """Note that a partition has stored a message."""
        if topic is None or key is None:
            return
        reached = self._reached.setdefault(topic, set())
        reached.add(partition)
        if len(reached) == self._partitions.get(topic):
            self._firm.add(topic)
        if len(self._keys) >= _REMEMBERED:
            self._keys.clear()
        self._keys.add((topic, key))
