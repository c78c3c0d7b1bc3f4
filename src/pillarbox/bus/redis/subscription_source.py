"""Where a subscription's deliveries come from: one group for all, or streams with one reader each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from pillarbox.bus.redis.subscription_entries import Hands
from pillarbox.bus.redis.subscription_group import START, Group
from pillarbox.bus.subscription import Delivery

LetGo = Callable[[str], Awaitable[None]]
"""Give up a stream: its deliveries are dropped, and nothing of it is being worked on any more."""

ROUNDS: Final = 3
"""So often a member says that it lives, before others take it for dead."""


class Source(Protocol):
    """Get deliveries, and stay a member."""

    async def read(self, most: int) -> Sequence[Delivery]:
        """Return deliveries, or none after about a second."""
        ...

    async def attend(self) -> Sequence[str]:
        """Say that this member lives; return the streams that have to be let go."""
        ...

    async def release(self, stream: str) -> None:
        """Let other members have a stream of which nothing is in our hands any more."""
        ...

    def doubt(self) -> None:
        """Take it that a command was carried out whose answer did not come."""
        ...

    async def leave(self) -> None:
        """Let other members have everything."""
        ...


class SharedSource:
    """Read streams together with all other members: each entry goes to whoever asks first.

    An entry whose member has not touched it for `idle` milliseconds is taken over; each member
    touches what it has in its hands more often than that.
    """

    def __init__(self, group: Group, topics: Mapping[str, str], hands: Hands, idle: int) -> None:
        self._group = group
        self._topics = topics
        self._hands = hands
        self._idle = idle
        self._due: list[tuple[str, str]] = []

    async def read(self, most: int) -> Sequence[Delivery]:
        """Take over what is due, else wait for new entries."""
        while self._due:
            stream, start = self._due[0]
            after, entries = await self._group.claim(stream, self._idle, start, most)
            self._due[0] = (stream, after)
            if after == START:
                del self._due[0]
            if found := self._taken(stream, entries, redelivered=True):
                return found
        count = max(1, most // len(self._topics))
        came = await self._group.read([*self._topics], count)
        return [
            delivery
            for stream, entries in came
            for delivery in self._taken(stream, entries, redelivered=False)
        ]

    async def attend(self) -> Sequence[str]:
        """Touch what is in our hands, and have the next `read` look for what others left."""
        for stream in self._topics:
            await self._group.set_idle(stream, self._hands.of(stream), 0)
        self._due = self._due or [(stream, START) for stream in self._topics]
        return ()

    async def release(self, stream: str) -> None:
        """Do nothing: no stream is ours alone."""

    def doubt(self) -> None:
        """Do nothing: nobody touches what did not come, so that it is taken over."""

    async def leave(self) -> None:
        """Have others take over at once what is in our hands."""
        for stream in self._topics:
            await self._group.set_idle(stream, self._hands.of(stream), self._idle)
            await self._group.forget_members(stream, self._group.member)

    def _taken(
        self, stream: str, entries: Sequence[object], *, redelivered: bool
    ) -> list[Delivery]:
        return self._hands.take(self._topics[stream], stream, entries, redelivered=redelivered)
