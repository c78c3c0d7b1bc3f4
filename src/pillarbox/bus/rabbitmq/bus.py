"""Publish to RabbitMQ."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from aiormq.exceptions import AMQPError, ChannelAccessRefused, ChannelInvalidStateError

from pillarbox.bus.handover import CLOSED, NO_ANSWER, Handover
from pillarbox.bus.loopback import all_loopback, plaintext_weakness, unverified_weakness
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable
from pillarbox.bus.partition import check_partitions, partition_for
from pillarbox.bus.rabbitmq.channel import PublishingChannel
from pillarbox.bus.rabbitmq.connection import Connection, address_of, verifies
from pillarbox.bus.rabbitmq.frames import WireMessage, wire_message
from pillarbox.bus.rabbitmq.outcomes import BLOCKED, invalid
from pillarbox.bus.rabbitmq.queues import SETTLE_SECONDS, Queues
from pillarbox.errors import BusUnreachable, InvalidTopic
from pillarbox.event.cloudevents import ContentMode
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import RABBITMQ, check_topic

_ANSWER_BY: Final = 0.9  # of the limit, so that `publish` has returned when it is over
_REACH_BY: Final = 0.4
_SEND_FOR: Final = 0.2
_FAILURES: Final = (TimeoutError, OSError, AMQPError, ChannelInvalidStateError)


class RabbitMQMessageBus:
    """Publish to a topic exchange of RabbitMQ, persistent and confirmed.

        bus = RabbitMQMessageBus("amqp://guest:guest@localhost:5672/")

    `options` are those of aiormq's `connect`, for security and tuning; `user` and `password` may stand
    there too, also as callables, which are asked at each connection. The exchange and a quorum queue
    for each topic are made by `apply`, and by themselves when the broker is on this machine. With
    `partitions` a topic is spread by key over that many queues, so that each can have one consumer
    that takes the events of a key in order.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "events",
        partitions: int | None = None,
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._address = address_of(url)
        host = self._address.host or ""
        self._shown = f"{self._address.scheme}://{host}"
        self._exchange = exchange
        self._partitions = check_partitions(partitions)
        self._seconds = publish_timeout.total_seconds()
        self._mode: ContentMode = content_mode
        self._options = dict(options or {})
        self._makes_queues = all_loopback([host])
        self._capabilities = Capabilities(RABBITMQ, publish_timeout)
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._settled_at = 0.0
        self._kept: set[str] = set()
        self._farewells: set[asyncio.Task[None]] = set()

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    async def start(self) -> Sequence[str]:
        """Connect; return what would lose acknowledged events, as far as AMQP shows it."""
        try:
            async with asyncio.timeout(self._seconds):
                queues = await self._queues()
                return [*self._exposure(), *await queues.weaknesses(sorted(self._kept))]
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand over a batch; the outcomes come in the same order."""
        deadline = asyncio.get_running_loop().time() + self._seconds * _ANSWER_BY
        if not one_by_one:
            return await self._publish(batch, deadline)

        async def publish_alone(message: MessageEnvelope) -> PublishOutcome:
            return (await self._publish((message,), deadline))[0]

        return await publish_one_by_one(batch, deadline, publish_alone)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create the exchange and the queues that are missing; return the names of the queues."""
        try:
            async with asyncio.timeout(self._seconds):
                queues = await self._queues()
                made = await self._create(queues, [check_topic(t, RABBITMQ) for t in topics])
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error
        self._kept.update(topics)
        return made

    async def close(self) -> None:
        """Disconnect; messages without an answer are unknown."""
        if self._connection is not None:
            self._connection.end(CLOSED)
            self._drop(self._connection)
        if self._farewells:
            await asyncio.wait(self._farewells)

    async def _publish(
        self, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        if not batch:
            return []
        try:
            async with asyncio.timeout(self._seconds * _REACH_BY):
                connection, channel = await self._standing()
            if await channel.blocked():
                return [BLOCKED] * len(batch)
            async with asyncio.timeout_at(deadline - self._seconds * _SEND_FOR):
                refused = await self._look_at(batch)
        except _FAILURES as error:
            return [Unavailable("unreachable", _reason(error))] * len(batch)
        wired: list[WireMessage] = []
        known: list[PublishOutcome | None] = []
        for message in batch:
            wire = refused.get(message.topic) or self._wire(message)
            known.append(None if isinstance(wire, WireMessage) else wire)
            if isinstance(wire, WireMessage):
                wired.append(wire)
        answers = iter(await self._answers(connection, channel, wired, deadline) if wired else ())
        return [outcome or next(answers) for outcome in known]

    async def _answers(
        self,
        connection: Connection,
        channel: PublishingChannel,
        wired: Sequence[WireMessage],
        deadline: float,
    ) -> Sequence[PublishOutcome]:
        handover = Handover(len(wired), deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await channel.hand_over(wired, handover)
                await handover.done
        except TimeoutError:
            handover.end(NO_ANSWER)
            # A blocked broker says that it lives, and takes what the socket holds later. Of another
            # nobody knows what becomes of that: the next call gets a new connection.
            if not await channel.blocked():
                connection.end(NO_ANSWER)
                self._drop(connection)
        finally:
            if handover.missing:
                channel.abandon(handover)
        self._learn(handover.outcomes())
        return handover.outcomes()

    async def _look_at(
        self, batch: Sequence[MessageEnvelope]
    ) -> Mapping[str | None, PublishOutcome]:
        """Return the topics that have no exchange or that are no name, with the reason."""
        unseen = {message.topic for message in batch} - self._kept
        if not unseen:
            return {}
        async with self._looking:
            refused: dict[str | None, PublishOutcome] = {}
            names = []
            for topic in unseen - self._kept:
                try:
                    names.append(check_topic(topic or "", RABBITMQ))
                except InvalidTopic as error:
                    refused[topic] = Refused(error.code, str(error))
            problem = await self._problem(names) if names else None
            if problem is None:
                self._kept.update(names)
                return refused
            return refused | dict.fromkeys(names, problem)

    async def _problem(self, topics: Sequence[str]) -> PublishOutcome | None:
        queues = await self._queues()
        if self._makes_queues:
            try:
                await self._create(queues, topics)
            except ChannelAccessRefused:
                # The right to publish is enough where somebody else has made them.
                return await queues.problem()
        return await queues.problem()

    async def _create(self, queues: Queues, topics: Sequence[str]) -> Sequence[str]:
        """Make what is missing, and wait until new queues would outlive a crash."""
        clock = asyncio.get_running_loop()
        made = await queues.create(topics)
        if made:
            self._settled_at = clock.time() + SETTLE_SECONDS
        await asyncio.sleep(max(0.0, self._settled_at - clock.time()))
        return made

    def _wire(self, envelope: MessageEnvelope) -> WireMessage | Refused:
        try:
            place = partition_for(envelope, self._partitions)
            if envelope.routing_key is not None:
                place = envelope.routing_key + place.removeprefix(envelope.topic or "")
            return wire_message(envelope, place, self._mode)
        except UnicodeEncodeError as error:
            return invalid("text", f"holds what UTF-8 cannot: {error.reason}")

    def _learn(self, outcomes: Sequence[PublishOutcome]) -> None:
        """Look again, before the next messages, at topics that could not take these."""
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                self._kept.discard(outcome.topic or "")

    async def _queues(self) -> Queues:
        connection, _ = await self._standing()
        return Queues(connection.client, self._exchange, self._partitions)

    async def _standing(self) -> tuple[Connection, PublishingChannel]:
        """Return a connection that stands and its channel, or raise."""
        async with self._connecting:
            if self._connection is None or self._connection.ended:
                self._connection = None
                self._connection = await self._opened()
            channel, is_new = await self._connection.channel()
            if is_new:
                self._kept.clear()
            return self._connection, channel

    async def _opened(self) -> Connection:
        connection = Connection(self._address, self._exchange, self._options)
        try:
            await connection.open()
        except BaseException:
            self._drop(connection)
            raise
        return connection

    def _exposure(self) -> list[str]:
        """Say whether others can read along, or pass for the broker."""
        if self._address.scheme == "amqps":
            if verifies(self._address, self._options):
                return []
            return unverified_weakness(self._shown)
        return plaintext_weakness(self._shown, "use amqps://", here=self._makes_queues)

    def _drop(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
        farewell = asyncio.get_running_loop().create_task(connection.close())
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)


def _reason(error: Exception) -> str:
    return " ".join(map(str, error.args)) or type(error).__name__
