"""Partitions with one reader each: leases in Redis, and the entries that a holder reads."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pillarbox.bus.redis.subscription_entries import Hands
from pillarbox.bus.redis.subscription_group import BLOCK_MILLISECONDS, START, Group
from pillarbox.bus.redis.subscription_scripts import ATTEND, READ, RELEASE, RENEW, TAKE_OVER
from pillarbox.bus.subscription import Delivery

_SECOND = 1_000


@dataclass(slots=True, eq=False)
class _Held:
    """A stream that is ours: entries that others left come first, then those after `last`."""

    stream: str
    lease: str
    cursor: str | None = START
    last: str = START
    leaving: bool = False


def share_of(member: str, members: Sequence[str], count: int) -> int:
    """Return how many of `count` partitions a member shall have; all shares make `count`."""
    place = sorted(members).index(member)
    least, more = divmod(count, len(members))
    return least + (place < more)


class LeasedSource:
    """Read the streams whose leases this member holds; nobody else reads them meanwhile.

    The leases stand in Redis, beside the streams: they are reached whenever the streams are, and a
    stream can be read in the same step in which its lease is seen to stand. A holder that was
    frozen, or whose lease a failover lost, may still work on entries that it has read; the inbox,
    where both claim the same message, lets the second wait for the first.
    """

    def __init__(self, group: Group, topics: Mapping[str, str], hands: Hands, life: int) -> None:
        self._group = group
        self._topics = topics
        self._hands = hands
        self._life = life
        self._held: dict[str, _Held] = {}
        self._gained = asyncio.Event()
        self._turn = 0

    async def read(self, most: int) -> Sequence[Delivery]:
        """Return what earlier holders left, else new entries."""
        for waited in (False, True):
            ours = [held for held in self._held.values() if not held.leaving]
            found = await self._left_by_others(ours, most) or await self._new(ours, most)
            if found or waited:
                return found
            await self._wait(ours)
        return ()

    async def attend(self) -> Sequence[str]:
        """Renew the leases, and take free ones up to our share; return those to let go."""
        going = await self._lost()
        for topic in dict.fromkeys(self._topics.values()):
            streams = [stream for stream, of in self._topics.items() if of == topic]
            words = (self._group.member, self._life)
            found = await self._group.run(ATTEND, [self._members(topic)], *words)
            members = [member.decode() for member in found]
            share = share_of(self._group.member, members, len(streams))
            ours = [s for s in streams if s in self._held and not self._held[s].leaving]
            going += [stream for stream in ours[share:] if stream not in going]
            await self._acquire([s for s in streams if s not in self._held], share - len(ours))
        for stream in going:
            self._held[stream].leaving = True
        return going

    async def release(self, stream: str) -> None:
        """End a lease."""
        held = self._held.pop(stream)
        await self._group.run(RELEASE, [held.lease], self._group.member)

    def doubt(self) -> None:
        """Look at all that is ours again, before anything newer is read."""
        for held in self._held.values():
            held.cursor = START

    async def leave(self) -> None:
        """End all leases, and the membership."""
        leases = [held.lease for held in self._held.values()]
        self._held.clear()
        await self._group.run(RELEASE, leases, self._group.member)
        for topic in dict.fromkeys(self._topics.values()):
            await self._group.resign(self._members(topic))
        for stream in self._topics:
            await self._group.forget_members(stream, self._group.member)

    async def _left_by_others(self, ours: Sequence[_Held], most: int) -> list[Delivery]:
        for held in ours:
            while held.cursor is not None:
                words = (self._group.member, self._group.name, self._group.member)
                keys = [held.lease, held.stream]
                answer = await self._group.run(TAKE_OVER, keys, *words, held.cursor, most)
                if answer is None:
                    break  # Lost: the next renewal finds it so.
                after = answer[0].decode()
                if after == START:
                    held.last = await self._group.last_delivered(held.stream)
                held.cursor = None if after == START else after
                if found := self._taken(held, answer[1], redelivered=True):
                    return found
        return []

    async def _new(self, ours: Sequence[_Held], most: int) -> list[Delivery]:
        ready = [held for held in ours if held.cursor is None]
        if not ready:
            return []
        # Each is the first in its turn, so that a busy one does not keep the others waiting.
        self._turn = (self._turn + 1) % len(ready)
        ready = ready[self._turn :] + ready[: self._turn]
        keys = [key for held in ready for key in (held.lease, held.stream)]
        words = (self._group.member, self._group.name, self._group.member, most)
        made = []
        for held, entries in zip(ready, await self._group.run(READ, keys, *words), strict=True):
            if entries:
                held.last = entries[-1][0].decode()
                made += self._taken(held, entries, redelivered=False)
        return made

    async def _wait(self, ours: Sequence[_Held]) -> None:
        if ours:
            await self._group.wait({held.stream: held.last for held in ours})
            return
        self._gained.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(BLOCK_MILLISECONDS / _SECOND):
                await self._gained.wait()

    async def _lost(self) -> list[str]:
        ours = [*self._held.values()]
        if not ours:
            return []
        leases = [held.lease for held in ours]
        answers = await self._group.run(RENEW, leases, self._group.member, self._life)
        said = zip(ours, answers, strict=True)
        return [held.stream for held, stands in said if not stands and not held.leaving]

    async def _acquire(self, free: Sequence[str], most: int) -> None:
        for stream in free:
            if most < 1:
                return
            lease = f"{stream}:pillarbox:{self._group.name}:holder"
            if await self._group.acquire(lease, self._life):
                self._held[stream] = _Held(stream, lease)
                self._gained.set()
                most -= 1

    def _taken(
        self, held: _Held, entries: Sequence[object], *, redelivered: bool
    ) -> list[Delivery]:
        topic = self._topics[held.stream]
        return self._hands.take(topic, held.stream, entries, redelivered=redelivered)

    def _members(self, topic: str) -> str:
        return f"{topic}:pillarbox:{self._group.name}:members"
