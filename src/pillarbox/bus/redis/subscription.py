"""Listen to Redis Streams."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from redis.asyncio.connection import AbstractConnection

from pillarbox.bus.arrivals import Arrivals
from pillarbox.bus.redis.outcomes import reason_of
from pillarbox.bus.redis.subscription_entries import Hands
from pillarbox.bus.redis.subscription_group import BLOCK_MILLISECONDS, Group, is_missing
from pillarbox.bus.redis.subscription_leases import LeasedSource
from pillarbox.bus.redis.subscription_line import FAILURES, Line
from pillarbox.bus.redis.subscription_source import ROUNDS, SharedSource, Source
from pillarbox.bus.subscription import UNORDERED, Delivery, Reception, Revoked
from pillarbox.errors import BusUnreachable, InvalidConfig

_log = logging.getLogger("pillarbox.bus.redis")

_SECOND: Final = 1_000
_SILENCE: Final = BLOCK_MILLISECONDS / _SECOND
_ANSWER_SECONDS: Final = 3 * _SILENCE
_AGAIN_SECONDS: Final = 0.2
_LEAVE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Access:
    """How a subscription reaches its server, and what it may do there."""

    connection: Callable[[], AbstractConnection]
    look: Callable[[], Awaitable[Sequence[str]]]
    shown: str
    makes_streams: bool
    seconds: float


class RedisSubscription:
    """Be one member of a consumer group; `topics` are the topics of streams, by stream.

    With `leased` each stream has one reading member at a time, and the messages of a key come in
    their order. Without, members share every stream. A member that is silent for `member_timeout` is
    taken for dead, and others get what it had.
    """

    def __init__(
        self,
        access: Access,
        consumer: str,
        topics: Mapping[str, str],
        *,
        leased: bool,
        member_timeout: timedelta,
    ) -> None:
        self._access = access
        self._topics = topics
        seconds = max(access.seconds, _ANSWER_SECONDS)
        reading, asking = (Line(access.connection, seconds) for _ in range(2))
        self._lines = (reading, asking)
        member = f"{socket.gethostname()}-{secrets.token_hex(6)}"
        self._group = Group(consumer, member, reading, asking)
        self._hands = Hands()
        self._arrivals = Arrivals(lambda delivery: delivery.token.arrival)
        life = int(member_timeout.total_seconds() * _SECOND)
        make = LeasedSource if leased else SharedSource
        self._source: Source = make(self._group, topics, self._hands, life)
        self._round = member_timeout.total_seconds() / ROUNDS
        self._reception = Reception(
            orders_keys=leased, hand_back_limit=None, longest_redelivery=None
        )
        self._revoked: Revoked | None = None
        self._closed = False
        self._going: set[str] = set()
        self._finished: dict[str, set[str]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None

    @property
    def reception(self) -> Reception:
        """What this subscription can do."""
        return self._reception

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Make the groups that are missing, and join."""
        self._revoked = revoked
        said = await self._access.look()
        try:
            async with asyncio.timeout(self._access.seconds):
                await self._create_groups()
                for stream in self._topics:
                    await self._group.forget_members(stream)
                await self._source.attend()
        except FAILURES as error:
            raise BusUnreachable(self._access.shown, reason_of(error)) from error
        self._attending = asyncio.create_task(self._attend())
        return said if self._reception.orders_keys else [*said, UNORDERED]

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Read when nothing waits here; a cancelled call leaves what is being read to the next."""
        if self._attending is not None and self._attending.done():
            self._attending.result()  # Only a failure of `revoked` ends it.
        if not (self._arrivals or self._reading or self._closed):
            self._reading = asyncio.create_task(self._read(most))
        return await self._arrivals.take(most, _SILENCE)

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Take entries off the group's list; without an answer it is tried again."""
        if self._closed:
            return
        for delivery in done:
            self._finished.setdefault(delivery.partition, set()).add(delivery.token.entry)
        try:
            await self._settle()
        except FAILURES as error:
            _log.warning("redis_acknowledge_failed", extra={"reason": reason_of(error)})

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Deliver these again before all later ones; others get them when this member leaves."""
        if self._closed:
            return
        held = {stream: {*self._hands.of(stream)} for stream in self._topics}
        ours = [d for d in unfinished if d.token.entry in held[d.partition]]
        # What goes to another member is taken over there.
        self._arrivals.put_back(d for d in ours if d.partition not in self._going)

    async def lag(self) -> int | None:
        """Return how many entries no member has had."""
        try:
            found = [await self._group.lag(stream) for stream in self._topics]
        except FAILURES:
            return None
        known = [lag for lag in found if lag is not None]
        return sum(known) + len(self._arrivals) if len(known) == len(found) else None

    async def is_at_end(self) -> bool:
        """Tell whether nothing waits, also of what a member had in its hands that is gone."""
        if self._arrivals or self._closed:
            return False
        try:
            return all([await self._group.is_at_end(stream) for stream in self._topics])
        except FAILURES:
            return False

    async def close(self) -> None:
        """Leave what is unfinished to others, within a limit."""
        tasks = [task for task in (self._reading, self._attending) if task is not None]
        self._reading = self._attending = None
        self._closed = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVE_SECONDS)
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._settle()
                    await self._source.leave()
            except FAILURES as error:
                _log.warning("redis_leave_failed", extra={"reason": reason_of(error)})
        for line in self._lines:
            await line.close()

    async def _create_groups(self) -> None:
        for stream in self._topics:
            await self._group.create(stream, make=self._access.makes_streams)

    async def _read(self, most: int) -> None:
        """Read once; a broker that is away is waited for."""
        try:
            self._arrivals.put(await self._source.read(most))
        except FAILURES as error:
            self._source.doubt()
            await self._recover("redis_read_failed", error)
            await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            self._reading = None

    async def _attend(self) -> None:
        """Stay a member; streams that go to others are let go meanwhile."""
        async with asyncio.TaskGroup() as group:
            while not self._closed:
                try:
                    await self._settle()
                    for stream in await self._source.attend():
                        group.create_task(self._let_go(stream))
                except FAILURES as error:
                    await self._recover("redis_attend_failed", error)
                await asyncio.sleep(self._round)

    async def _let_go(self, stream: str) -> None:
        if self._reading is not None:
            # It may have begun while the stream was ours; no later one reads from it.
            await asyncio.wait([self._reading])
        self._going.add(stream)
        self._arrivals.drop([stream])
        if self._revoked is not None:
            await self._revoked([stream])
        self._arrivals.drop([stream])
        try:
            await self._settle()
        except FAILURES as error:
            _log.warning("redis_acknowledge_failed", extra={"reason": reason_of(error)})
        self._hands.drop(stream)
        self._going.discard(stream)
        try:
            await self._source.release(stream)
        except FAILURES as error:
            _log.warning("redis_release_failed", extra={"reason": reason_of(error)})

    async def _recover(self, event: str, error: Exception) -> None:
        """Tell of a failure; groups that are gone are made again, from the first entry on."""
        _log.warning(event, extra={"reason": reason_of(error)})
        if not is_missing(error):
            return
        try:
            await self._create_groups()
        except (*FAILURES, InvalidConfig) as again:
            _log.warning("redis_group_missing", extra={"reason": reason_of(again)})

    async def _settle(self) -> None:
        for stream, entries in [*self._finished.items()]:
            done = [*entries]
            if done:
                await self._group.acknowledge(stream, done)
                entries.difference_update(done)
                self._hands.let_go(stream, done)
