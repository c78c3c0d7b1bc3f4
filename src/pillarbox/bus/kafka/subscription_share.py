"""One partition while it is ours: which messages are not finished, and what may be committed."""

from collections import deque
from typing import Final

# How far messages may run ahead of the committed position: after a crash so many may come again.
FURTHEST: Final = 20_000
_OVERRUN: Final = 2_000  # what is on its way when a partition is stopped


class Share:
    """Follow the messages of one partition from the first that came.

    A share that is lost never comes back: the partition has a new one when it is ours again.
    """

    __slots__ = (
        "_done",
        "_first",
        "_next",
        "_open",
        "committed",
        "end",
        "leaving",
        "lost",
        "name",
        "place",
        "reached",
    )

    def __init__(self, topic: str, number: int) -> None:
        self.place = (topic, number)
        self.name = f"{topic}/{number}"
        self.committed = -1
        self.leaving = False
        self.lost = False
        self.end = 0  # where the partition ended when its first message came
        self.reached: int | None = None  # the last end of the partition that was come to
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self._first: int | None = None
        self._next = 0

    @property
    def next(self) -> int | None:
        """The position behind the last message that came, None if none did."""
        return None if self._first is None else self._next

    @property
    def read(self) -> int | None:
        """The position up to which nothing is left to come, None if nothing did."""
        if self.next is None or self.reached is None:
            return self.reached if self.next is None else self.next
        return max(self.next, self.reached)

    def came(self, offset: int) -> bool:
        """Note a message; tell whether a former member may have begun with it.

        Nobody can have had what was not there, or what lies further ahead than members ever go.
        """
        if self._first is None:
            self._first = offset
        self._open.append(offset)
        self._next = offset + 1
        return offset < min(self.end, self._first + FURTHEST + _OVERRUN)

    def finish(self, offset: int) -> None:
        """Note that a message is done; the same twice is harmless."""
        if not self._open or offset < self._open[0]:
            return
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self._done.discard(self._open.popleft())

    def to_commit(self) -> int | None:
        """Return the lowest unfinished position, None if it is committed."""
        if self._first is None:
            return None
        lowest = self._open[0] if self._open else self._next
        return lowest if lowest > max(self.committed, self._first) else None

    def ahead(self) -> int:
        """Return how far the messages that came are ahead of the committed position."""
        return 0 if self._first is None else self._next - max(self.committed, self._first)
