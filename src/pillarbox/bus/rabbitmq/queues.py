"""RabbitMQ's exchange and queues: look at them, make the missing ones."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from aiormq import Connection as Client
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from pillarbox.bus.outcome import Unavailable
from pillarbox.bus.partition import partitions_of
from pillarbox.bus.rabbitmq.leaving import leavable
from pillarbox.bus.rabbitmq.outcomes import no_exchange, refused_access

_Declare = Callable[[AbstractChannel], Awaitable[object]]

QUORUM: Final[Mapping[str, str | bool]] = {"x-queue-type": "quorum"}
_DIFFERENCE: Final = re.compile(r"inequivalent arg '([^']+)'(?:.*current is [^']*'([^']*)')?")
_MOST_DIFFERENCES: Final = 4
_ONE_CONSUMER: Final = "x-single-active-consumer"
DEAD_LETTERS: Final = "x-dead-letter-exchange"
TTL: Final = "x-message-ttl"
_MEANING: Final = {
    "type": "is no topic exchange: routing keys may not be heeded",
    "durable": "is not durable: a restart of the broker loses it and its events",
    "auto_delete": "is deleted with its last user, and its events with it",
    "x-queue-type": "is no quorum queue: a lost disk loses acknowledged events",
    _ONE_CONSUMER: "may have several consumers at a time: events of a key can overtake each other",
    DEAD_LETTERS: "names no dead-letter exchange: what consumers reject is lost, "
    "unless a policy names one",
    TTL: "drops events that nobody has taken after a time",
}
_UNSEEN: Final = (
    "AMQP does not show which queues are bound to exchange {exchange}, whether they are quorum queues "
    "with a dead-letter exchange, and how many nodes the cluster has: a classic queue or a single "
    "node loses acknowledged events with its disk"
)


class Queues:
    """The exchange behind one connection, and its queues."""

    def __init__(self, client: Client, exchange: str, partitions: int | None) -> None:
        self._client = client
        self._exchange = exchange
        self._partitions = partitions
        self._dead = f"{exchange}.dead"

    async def problem(self) -> Unavailable | None:
        """Return why the exchange cannot take messages, None if it is there."""
        try:
            await self._tell(lambda channel: channel.exchange_declare(self._exchange, passive=True))
        except ChannelNotFoundEntity:
            return no_exchange(self._exchange)
        except ChannelAccessRefused as error:
            return refused_access(str(error))
        return None

    async def create(self, topics: Sequence[str]) -> list[str]:
        """Make what is missing for these topics; return the names of the queues that were made."""
        await self._create_exchange(self._exchange)
        await self._create_exchange(self._dead)
        await self._create_queue(self._dead, QUORUM)
        await self._bind(self._dead, self._dead, "#")
        made = []
        for topic in topics:
            for queue in partitions_of(topic, self._partitions):
                if await self._create_queue(queue, self._arguments):
                    made.append(queue)
                await self._bind(queue, self._exchange, queue)
        return made

    async def weaknesses(self, topics: Sequence[str]) -> list[str]:
        """Say where acknowledged messages would be lost, as far as AMQP shows it."""
        missing = await self.problem()
        if missing is not None:
            return [missing.reason]
        said = []
        found = await self._difference(_declare_exchange(self._exchange))
        if found is not None:
            said.append(f"exchange {self._exchange} {meaning(found[0])}")
        for topic in topics:
            for queue in partitions_of(topic, self._partitions):
                said += await self._queue_weaknesses(queue)
        return [*said, _UNSEEN.format(exchange=self._exchange)]

    @property
    def _arguments(self) -> dict[str, str | bool]:
        ordered = {} if self._partitions is None else {_ONE_CONSUMER: True}
        return {**QUORUM, DEAD_LETTERS: self._dead, **ordered}

    async def _queue_weaknesses(self, queue: str) -> list[str]:
        if not await self._has_queue(queue):
            return []
        return [f"queue {queue} {meaning(name)}" for name in await self._differences(queue)]

    async def _differences(self, queue: str) -> dict[str, str | None]:
        """Declare a queue that is there, and learn from each refusal what it has instead."""
        said: dict[str, str | None] = {}
        arguments = self._arguments
        for _ in range(_MOST_DIFFERENCES):
            found = await self._difference(self._declare_queue(queue, arguments))
            if found is None:
                break
            name, current = found
            if name != DEAD_LETTERS or current is None:
                said[name] = current
            if name not in arguments:
                break
            del arguments[name]
            if current is not None:
                arguments[name] = current
        return said

    async def _create_queue(self, queue: str, arguments: Mapping[str, str | bool]) -> bool:
        if await self._has_queue(queue):
            return False
        await self._tell(self._declare_queue(queue, arguments))
        return True

    async def _has_queue(self, queue: str) -> bool:
        return await self._has(lambda channel: channel.queue_declare(queue, passive=True))

    async def _bind(self, queue: str, exchange: str, routing_key: str) -> None:
        await self._tell(lambda channel: channel.queue_bind(queue, exchange, routing_key))

    async def _create_exchange(self, exchange: str) -> None:
        if not await self._has(lambda channel: channel.exchange_declare(exchange, passive=True)):
            await self._tell(_declare_exchange(exchange))

    async def _has(self, declare: _Declare) -> bool:
        try:
            await self._tell(declare)
        except ChannelNotFoundEntity:
            return False
        return True

    async def _difference(self, declare: _Declare) -> tuple[str, str | None] | None:
        """Return what differs in a thing that is there, with its value, None if nothing does."""
        try:
            await self._tell(declare)
        except ChannelPreconditionFailed as error:
            found = _DIFFERENCE.search(str(error))
            return (found[1], found[2]) if found else (str(error), None)
        except ChannelAccessRefused:
            return None  # Without the right to configure it stays among what is not shown.
        return None

    async def _tell(self, declare: _Declare) -> None:
        """Ask over a channel of its own, since a refusal ends the channel."""
        await leavable(self._ask(declare))

    async def _ask(self, declare: _Declare) -> None:
        if self._client.is_closed:
            # Another call gave the connection up; the client itself would raise a RuntimeError.
            raise ConnectionError("the connection was closed meanwhile")
        channel = await self._client.channel(publisher_confirms=False)
        try:
            await declare(channel)
        finally:
            await channel.close()

    def _declare_queue(self, queue: str, arguments: Mapping[str, str | bool]) -> _Declare:
        return lambda channel: channel.queue_declare(queue, durable=True, arguments={**arguments})


def _declare_exchange(exchange: str) -> _Declare:
    return lambda channel: channel.exchange_declare(exchange, exchange_type="topic", durable=True)


def meaning(name: str) -> str:
    """Say what follows when a thing is not as it should be."""
    return _MEANING.get(name, f"is not as `pillarbox bus apply` makes it: {name}")
