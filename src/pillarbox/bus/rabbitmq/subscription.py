"""Listen to RabbitMQ."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Self

from aiormq import Connection as Client
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    InvalidFrameError,
)

from pillarbox.bus.arrivals import Arrivals
from pillarbox.bus.rabbitmq.connection import Connection, Wrap
from pillarbox.bus.rabbitmq.leaving import leavable
from pillarbox.bus.rabbitmq.settling import SETTLE_SECONDS
from pillarbox.bus.rabbitmq.subscription_channel import QueueChannel
from pillarbox.bus.rabbitmq.subscription_message import delivery_of
from pillarbox.bus.rabbitmq.subscription_queues import ConsumerQueues, Place, Roll
from pillarbox.bus.rabbitmq.subscription_reader import careful
from pillarbox.bus.subscription import UNORDERED, Delivery, Reception, Revoked
from pillarbox.errors import BusUnreachable

_log = logging.getLogger("pillarbox.bus.rabbitmq")

FAILURES: Final = (TimeoutError, OSError, RuntimeError, AMQPError, ChannelInvalidStateError)
_SILENCE: Final = 1.0
_ROUND_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.3
_MOST: Final = 65_535
# RabbitMQ ends a channel that has not acknowledged a message for so long (`consumer_timeout`).
_CONSUMER_TIMEOUT: Final = timedelta(minutes=30)

_UNCOUNTED: Final = (
    "there is no queue {missing} by which members count each other: the one that came first keeps "
    "all partitions of {topic} until it goes; make a durable quorum queue of this name"
)


@dataclass(frozen=True, slots=True)
class Access:
    """How a subscription reaches its broker, and what it may do there."""

    connection: Callable[[Wrap | None], Connection]
    exposure: Sequence[str]
    shown: str
    exchange: str
    partitions: int | None
    makes_queues: bool
    dead_letter_policy: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Share:
    """How many queues one of some members has when all have the same, give or take one."""

    least: int
    most: int

    @classmethod
    def of(cls, queues: int, members: int) -> Self:
        """Part queues between members."""
        least, rest = divmod(queues, max(1, members))
        return cls(least, least + bool(rest))

    def surplus(self, active: Sequence[str], *, anybody_short: bool) -> list[str]:
        """Return which of the queues that give us messages others shall have.

        Whoever has one more than the least keeps it, unless somebody has less than that.
        """
        if anybody_short and self.least < len(active) <= self.most:
            return [active[-1]]
        return [*active[self.most :]]


class RabbitMQSubscription:
    """Consume queues of one consumer, each over a channel of its own.

    RabbitMQ gives a partition's queue to the consumer that came first, and to the next when that
    goes: the first member would keep all of them. So a member that has more than its share goes, and
    comes again as the last in the row.
    """

    def __init__(
        self, access: Access, places: Mapping[str, Place], window: int, rolls: Mapping[str, Roll]
    ) -> None:
        self._access = access
        self._places = places
        self._rolls = dict(rolls)
        self._prefetch = min(_MOST, max(1, window // len(places)))
        self._reception = Reception(
            orders_keys=access.partitions is not None,
            hand_back_limit=_CONSUMER_TIMEOUT,
            longest_redelivery=None,
        )
        self._arrivals = Arrivals(lambda delivery: delivery.token.arrival)
        self._came = 0
        self._connection: Connection | None = None
        self._channels: dict[str, QueueChannel] = {}
        self._members: dict[str, QueueChannel] = {}
        self._short: dict[str, QueueChannel] = {}
        self._connecting = asyncio.Lock()
        self._wrap: Wrap | None = None
        self._trouble = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._revoked: Revoked | None = None
        self._closed = False

    @property
    def reception(self) -> Reception:
        """What this subscription can do."""
        return self._reception

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Connect, see that the queues are there, and consume them."""
        self._revoked = revoked
        try:
            async with asyncio.timeout(self._access.seconds):
                queues = await self._queues()
                said = await self._prepared(queues)
                await self._mend()
        except FAILURES as error:
            raise BusUnreachable(self._access.shown, _reason(error)) from error
        self._keeping = asyncio.create_task(self._keep())
        unordered = [] if self._reception.orders_keys else [UNORDERED]
        return [*self._access.exposure, *said, *unordered]

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Take what has come."""
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()  # Only a failure of `revoked` ends it.
        return await self._arrivals.take(most, _SILENCE)

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Tell the broker; what came over a channel that has ended comes again by itself."""
        finished: dict[QueueChannel, list[int]] = {}
        for delivery in done:
            finished.setdefault(delivery.token.channel, []).append(delivery.token.number)
        for channel, numbers in finished.items():
            if channel.stands and not self._closed:
                with suppress(*FAILURES):  # It has ended, and the messages come again.
                    await channel.acknowledge(numbers)

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Deliver these again from here: RabbitMQ would count it, and reject them in the end."""
        if not self._closed:
            self._arrivals.put_back(d for d in unfinished if d.token.channel.holds(d.token.number))

    async def lag(self) -> int | None:
        """Return how many messages wait in the queues, and here."""
        try:
            async with asyncio.timeout(self._access.seconds):
                found = [await channel.ready() for channel in [*self._channels.values()]]
        except FAILURES:
            return None
        return sum(found) + len(self._arrivals) if found else None

    async def close(self) -> None:
        """Leave; the broker gives what is unfinished to others."""
        self._closed = True
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        self._arrivals.drop(self._places)
        await self._disconnect()

    async def _prepared(self, queues: ConsumerQueues) -> list[str]:
        if self._access.makes_queues:
            # The right to read is enough where somebody else has made them.
            with suppress(ChannelAccessRefused):
                if await queues.create_for(self._places, self._rolls):
                    await asyncio.sleep(SETTLE_SECONDS)
        weak, kept = await queues.check(self._places, policy=self._access.dead_letter_policy)
        self._reception = replace(self._reception, longest_redelivery=kept)
        for topic, roll in [*self._rolls.items()]:
            if missing := await queues.missing(roll):
                weak.append(_UNCOUNTED.format(missing=" and no queue ".join(missing), topic=topic))
                del self._rolls[topic]
        return [*weak, *await queues.weaknesses(())]

    async def _keep(self) -> None:
        """Come back after losses, and let others have their share."""
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROUND_SECONDS):
                    await self._trouble.wait()
            self._trouble.clear()
            try:
                await self._mend()
                await self._balance()
            except FAILURES as error:
                _log.warning("rabbitmq_subscription_waits", extra={"reason": _reason(error)})
                if isinstance(error, TimeoutError):
                    # What was asked for may still happen, and a channel that nobody reads would
                    # keep a partition: its connection takes it along.
                    await self._disconnect()
                await asyncio.sleep(_AGAIN_SECONDS)
                self._trouble.set()

    async def _mend(self) -> None:
        """Consume every queue whose channel does not stand."""
        if self._connection is None or self._connection.ended:
            await self._lose([*self._channels])
        lost = [queue for queue, channel in self._channels.items() if not channel.stands]
        await self._lose(lost)
        async with asyncio.timeout(self._access.seconds):
            client = (await self._standing()).client
            missing = [queue for queue in self._places if queue not in self._channels]
            problems = [await self._consume(client, queue) for queue in missing]
            for problem in problems:
                if problem is not None:
                    raise problem
            for topic, roll in self._rolls.items():
                if not _stands(self._members.get(topic)):
                    self._members[topic] = await self._counted(client, roll.members)

    async def _consume(self, client: Client, queue: str) -> Exception | None:
        """Consume a queue; one that is gone is no reason to leave the others alone."""
        try:
            self._channels[queue] = await QueueChannel.opened(
                client, queue, self._prefetch, self._take, self._trouble.set
            )
        except ChannelNotFoundEntity as error:
            return error
        return None

    async def _lose(self, queues: Collection[str]) -> None:
        if not queues:
            return
        for queue in queues:
            self._channels[queue].leaving = True
        self._arrivals.drop(queues)
        if self._revoked is not None:
            await self._revoked(queues)
        self._arrivals.drop(queues)
        for queue in queues:
            del self._channels[queue]

    async def _counted(self, client: Client, queue: str) -> QueueChannel:
        return await QueueChannel.opened(client, queue, 1, _pass_over, self._trouble.set)

    async def _balance(self) -> None:
        """Let go of what others shall have, and come again as the last in their row."""
        for topic, roll in self._rolls.items():
            async with asyncio.timeout(self._access.seconds):
                goes = await self._surplus(topic, roll)
            for queue in goes:
                channel = self._channels[queue]
                await self._lose([queue])
                async with asyncio.timeout(self._access.seconds):
                    await leavable(channel.close())
                self._trouble.set()

    async def _surplus(self, topic: str, roll: Roll) -> list[str]:
        """Return which queues of a topic others shall have; let them see if we have too few."""
        ours = [queue for queue, place in self._places.items() if place.topic == topic]
        active = [q for q in ours if (channel := self._channels.get(q)) and channel.active]
        counting = self._members[topic]
        share = Share.of(len(ours), await counting.consumers_of(roll.members))
        await self._say_short(topic, roll, short=len(active) < share.least)
        anybody_short = await counting.consumers_of(roll.short) > 0
        return share.surplus(active, anybody_short=anybody_short)

    async def _say_short(self, topic: str, roll: Roll, *, short: bool) -> None:
        said = self._short.get(topic)
        if short and not _stands(said):
            client = (await self._standing()).client
            self._short[topic] = await self._counted(client, roll.short)
        elif not short and said is not None:
            del self._short[topic]
            if said.stands:
                await leavable(said.close())

    def _take(self, channel: QueueChannel, message: DeliveredMessage) -> None:
        self._came += 1
        topic = self._places[channel.queue].topic
        self._arrivals.put([delivery_of(topic, channel, message, self._came)])

    async def _queues(self) -> ConsumerQueues:
        client = (await self._standing()).client
        return ConsumerQueues(client, self._access.exchange, self._access.partitions)

    async def _standing(self) -> Connection:
        """Return a connection that stands, or raise."""
        async with self._connecting:
            if self._closed:
                raise ConnectionError("the subscription is closed")
            if self._connection is not None and not self._connection.ended:
                return self._connection
            if self._connection is not None:
                await self._connection.close()
            self._connection, connection = None, self._access.connection(self._wrap)
            try:
                await connection.open()
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            connection.client.closing.add_done_callback(self._broken)
            return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _broken(self, closing: asyncio.Future[None]) -> None:
        if not closing.cancelled() and isinstance(closing.exception(), InvalidFrameError):
            self._wrap = careful
        self._trouble.set()


def _stands(channel: QueueChannel | None) -> bool:
    return channel is not None and channel.stands


def _pass_over(channel: QueueChannel, message: DeliveredMessage) -> None:
    """Leave what a stranger has published to a queue that is for counting only."""
    del channel, message


def _reason(error: Exception) -> str:
    return " ".join(map(str, error.args)) or type(error).__name__
