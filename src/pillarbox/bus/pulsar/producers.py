"""The open producers of one client: made when they are needed, few at a time, closed when unused."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from pulsar import Client, NotConnected

from pillarbox.bus.handover import CLOSED
from pillarbox.bus.outcome import PublishOutcome
from pillarbox.bus.pulsar.producer import ProducerLife
from pillarbox.bus.pulsar.threads import Threads

UNUSED_SECONDS: Final = 300.0
_THREADS: Final = 4
_CLOSE_SECONDS: Final = 2.0
_PARTITION: Final = "-partition-0"


class TooManyProducers(Exception):
    """Every producer that may be open is open and in use."""


class ProducersClosed(Exception):
    """The bus was closed while a producer was opened."""


class Opened(NamedTuple):
    """A producer, the last number that the broker has seen under its name, and what that says."""

    producer: Any
    last: int
    exact: bool


class Producers:
    """Open a producer for a topic, in a thread, since the client blocks meanwhile.

    A broker that does not answer holds a thread until the client's own time-out; there are few of
    them, and all callers for one topic wait for the same one.
    """

    def __init__(
        self,
        client: Client,
        settings: Mapping[str, Any],
        limit: int,
        opened: Callable[[str, Opened], None],
    ) -> None:
        self._client = client
        self._settings = dict(settings)
        self._limit = limit
        self._tell = opened
        self.threads = Threads(_THREADS, "pillarbox-pulsar")
        self._lives: dict[str, ProducerLife] = {}
        self._openings: dict[str, asyncio.Future[ProducerLife]] = {}
        self._farewells: set[asyncio.Future[None]] = set()

    async def get(self, topic: str, address: str) -> ProducerLife:
        """Return a producer that is connected, or raise; the caller sets the limit."""
        life = self._lives.get(topic)
        if life is not None and life.connected:
            return life
        if life is not None:
            self.drop(life, CLOSED)
        if topic not in self._openings:
            self._make_room()
            self._openings[topic] = asyncio.get_running_loop().create_future()
            creating = self.threads.run(self._create, address)
            creating.add_done_callback(partial(self._opened, topic))
        return await asyncio.shield(self._openings[topic])

    def drop(self, life: ProducerLife, rest: PublishOutcome) -> None:
        """End a life; the next call for its topic opens a new one."""
        if self._lives.get(life.topic) is life:
            del self._lives[life.topic]
        farewell = life.end(rest)
        if not farewell.done():
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)

    def close_unused(self) -> list[str]:
        """Close what was not used for long; return the topics."""
        oldest = asyncio.get_running_loop().time() - UNUSED_SECONDS
        unused = [life for life in self._lives.values() if life.used < oldest and not life.busy]
        for life in unused:
            self.drop(life, CLOSED)
        return [life.topic for life in unused]

    async def in_thread(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Run a call of the client that blocks."""
        return await self.threads.run(work, *arguments)

    async def close(self) -> None:
        """End all producers within a limit."""
        for opening in self._openings.values():
            _fail(opening, ProducersClosed("the bus was closed before the broker answered"))
        self._openings.clear()
        for life in [*self._lives.values()]:
            self.drop(life, CLOSED)
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=_CLOSE_SECONDS)
        self.threads.close()

    def _create(self, address: str) -> Opened:
        if "producer_name" not in self._settings:
            return Opened(self._connected(address), -1, exact=False)
        partitions = self._client.get_topic_partitions(address)
        exact = not any(name.endswith(_PARTITION) for name in partitions)
        producer = self._connected(address)
        return Opened(producer, producer.last_sequence_id(), exact)

    def _connected(self, address: str) -> Any:
        """Open a producer, or raise.

        When its time is over the client may return a producer that is none: whatever it is asked
        but this crashes the process.
        """
        producer = self._client.create_producer(address, **self._settings)
        if not producer.is_connected():
            raise NotConnected("the broker did not answer in time")
        return producer

    def _opened(self, topic: str, creating: asyncio.Future[Opened]) -> None:
        opening = self._openings.pop(topic, None)
        if creating.cancelled():
            return
        error = creating.exception()
        if error is not None:
            if opening is not None:
                _fail(opening, error)
            return
        life = ProducerLife(topic, creating.result().producer)
        if opening is None:
            life.end(CLOSED)
            return
        self._tell(topic, creating.result())
        self._lives[topic] = life
        opening.set_result(life)

    def _make_room(self) -> None:
        if len(self._lives) + len(self._openings) < self._limit:
            return
        idle = [life for life in self._lives.values() if not life.busy]
        if not idle:
            raise TooManyProducers(f"{self._limit} producers are open and in use")
        self.drop(min(idle, key=lambda life: life.used), CLOSED)


def _fail(opening: asyncio.Future[ProducerLife], error: BaseException) -> None:
    opening.set_exception(error)
    opening.exception()  # Seen, even if every caller has left.
