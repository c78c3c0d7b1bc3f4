"""The queues of one consumer: each of its own, so that consumers do not share messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Final, NamedTuple, Self

from pillarbox.bus.rabbitmq.queues import DEAD_LETTERS, QUORUM, TTL, Queues, meaning
from pillarbox.errors import InvalidConfig

_NAME_BYTES: Final = 255


def queue_name(consumer: str, routing_key: str) -> str:
    """Name a consumer's queue, or refuse what RabbitMQ would."""
    name = f"{consumer}.{routing_key}"
    if name.startswith("amq.") or len(name.encode()) > _NAME_BYTES:
        raise InvalidConfig(
            "consumer",
            "and topic make no name of a queue",
            f"take names of up to {_NAME_BYTES} bytes together that do not start with amq.",
        )
    return name


class Roll(NamedTuple):
    """Two queues by which the members of a topic count each other; nobody publishes to them.

    Every member consumes the one, and those with less than their share the other. RabbitMQ tells how
    many consume a queue, but of one with a single active consumer only that one.
    """

    members: str
    short: str

    @classmethod
    def of(cls, consumer: str, topic: str) -> Self:
        """Name the queues of a consumer for one of its topics."""
        name = queue_name(consumer, topic)
        return cls(f"{name}.members", f"{name}.short")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the messages of a queue come from: a topic, and the routing key of its partition."""

    topic: str
    routing_key: str


class Survey(NamedTuple):
    """What is weak in some queues, and how long they have a message; None for ever, or unseen."""

    weak: list[str]
    kept: timedelta | None


class ConsumerQueues(Queues):
    """Look at a consumer's queues, and make the missing ones; each has its place."""

    async def create_for(self, places: Mapping[str, Place], rolls: Mapping[str, Roll]) -> list[str]:
        """Make the exchanges and queues that are missing; return the queues."""
        await self.create(())
        made = []
        for queue, place in places.items():
            if await self._create_queue(queue, self._arguments):
                made.append(queue)
            await self._bind(queue, self._exchange, place.routing_key)
        for queue in chain.from_iterable(rolls.values()):
            await self._create_queue(queue, QUORUM)
        return made

    async def missing(self, roll: Roll) -> list[str]:
        """Return which of the queues for counting are not there."""
        return [queue for queue in roll if not await self._has_queue(queue)]

    async def check(self, places: Mapping[str, Place], *, policy: bool) -> Survey:
        """Look at the queues; raise when one is missing or what it rejects would be lost."""
        said: list[str] = []
        kept: list[timedelta | None] = []
        for queue, place in places.items():
            remedy = self._remedy(queue, place.routing_key)
            if not await self._has_queue(queue):
                raise InvalidConfig(
                    "topics",
                    f"have no queue {queue}",
                    f"run `pillarbox bus apply --app …`, or {remedy}",
                )
            weak = await self._differences(queue)
            if DEAD_LETTERS in weak and not policy:
                raise InvalidConfig(
                    f"queue {queue}",
                    "names no dead-letter exchange, so that what is rejected would be lost",
                    f"delete it when it is empty and {remedy}; or name the "
                    "exchange in a policy and give dead_letter_policy=True",
                )
            said += [f"queue {queue} {meaning(name)}" for name in weak if name != DEAD_LETTERS]
            kept.append(_kept(weak.get(TTL)))
        known = [length for length in kept if length is not None]
        return Survey(said, max(known) if len(known) == len(kept) else None)

    def _remedy(self, queue: str, routing_key: str) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self._arguments.items())
        return (
            f"make a durable queue {queue} with {arguments}, bound to exchange {self._exchange} "
            f"by {routing_key}, and exchange {self._dead} with a queue that keeps what it gets"
        )


def _kept(milliseconds: str | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=int(milliseconds))
