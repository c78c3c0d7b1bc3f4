"""Publish to RabbitMQ."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from aiormq.exceptions import AMQPError, ChannelAccessRefused, ChannelInvalidStateError

from pillarbox.bus.handover import CLOSED, NO_ANSWER, Handover
from pillarbox.bus.loopback import all_loopback, plaintext_weakness, unverified_weakness
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.odd_text import ENCODING_ERRORS, refuse_odd_text
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable
from pillarbox.bus.partition import check_partitions, partition_for, partitions_of
from pillarbox.bus.rabbitmq.channel import PublishingChannel
from pillarbox.bus.rabbitmq.connection import Connection, Wrap, address_of, verifies
from pillarbox.bus.rabbitmq.frames import WireMessage, wire_message
from pillarbox.bus.rabbitmq.outcomes import BLOCKED, is_unroutable
from pillarbox.bus.rabbitmq.queues import Queues
from pillarbox.bus.rabbitmq.settling import SETTLE_SECONDS, Settling
from pillarbox.bus.rabbitmq.subscription import Access, RabbitMQSubscription
from pillarbox.bus.rabbitmq.subscription_queues import (
    ConsumerQueues,
    Place,
    Roll,
    queue_name,
)
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
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
    for each topic are made by `apply`; on this machine the exchange is made by itself, and the queue
    of a topic when no other one takes its events. With `partitions` a topic is spread by key over
    that many queues, so that each can have one consumer that takes the events of a key in order.

    It can be listened to as well: each consumer has queues of its own, which name a dead-letter
    exchange, unless `dead_letter_policy` says that a policy does.
    """

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "events",
        partitions: int | None = None,
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        dead_letter_policy: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._address = address_of(url)
        host = self._address.host or ""
        self._shown = f"{self._address.scheme}://{host}"
        self._exchange = exchange
        self._partitions = check_partitions(partitions)
        self._seconds = publish_timeout.total_seconds()
        self._mode: ContentMode = content_mode
        self._dead_letter_policy = dead_letter_policy
        self._options = dict(options or {})
        self._makes_queues = all_loopback([host])
        self._capabilities = Capabilities(RABBITMQ, publish_timeout)
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._settling = Settling()
        self._kept: set[str] = set()
        self._untaken: set[str] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._closings = 0

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
                await self._settling.end(topics)
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error
        self._kept.update(topics)
        return made

    async def prepare(self, consumers: Sequence[SubscriptionRequest]) -> Sequence[str]:
        """Create the queues of consumers that are missing; return their names."""
        made: list[str] = []
        try:
            for request in consumers:
                async with asyncio.timeout(self._seconds):
                    connection, _ = await self._standing()
                    queues = ConsumerQueues(connection.client, self._exchange, self._partitions)
                    made += await queues.create_for(self._places(request), self._rolls(request))
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error
        if made:
            await asyncio.sleep(SETTLE_SECONDS)
        return made

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make a subscription to queues of the consumer's own, over a connection of its own."""
        access = Access(
            self._new_connection,
            self._exposure(),
            self._shown,
            self._exchange,
            self._partitions,
            self._makes_queues,
            self._dead_letter_policy,
            self._seconds,
        )
        return RabbitMQSubscription(
            access, self._places(request), request.window, self._rolls(request)
        )

    async def close(self) -> None:
        """Disconnect; messages without an answer are unknown."""
        self._closings += 1
        if self._connection is not None:
            self._connection.end(CLOSED)
            self._drop(self._connection)
        if self._farewells:
            await asyncio.wait(self._farewells)

    def _places(self, request: SubscriptionRequest) -> Mapping[str, Place]:
        return {
            queue_name(request.consumer, routing_key): Place(topic, routing_key)
            for topic in request.topics
            for routing_key in partitions_of(check_topic(topic, RABBITMQ), self._partitions)
        }

    def _rolls(self, request: SubscriptionRequest) -> Mapping[str, Roll]:
        if self._partitions is None:
            return {}
        return {topic: Roll.of(request.consumer, topic) for topic in request.topics}

    async def _publish(
        self, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        outcomes = await self._send(batch, deadline)
        back = {
            n
            for n, outcome in enumerate(outcomes)
            if is_unroutable(outcome) and batch[n].routing_key is None
        }
        if not (back and self._makes_queues):
            return outcomes
        # Nobody takes these: their topics get queues, and they are sent once more.
        self._untaken.update(batch[n].topic or "" for n in back)
        again = iter(await self._send([batch[n] for n in sorted(back)], deadline))
        return [next(again) if n in back else outcome for n, outcome in enumerate(outcomes)]

    async def _send(
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
                refused = await self._look_at(batch, self._queues_of(connection))
                await self._settling.end({message.topic for message in batch})
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
        self, batch: Sequence[MessageEnvelope], queues: Queues
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
            problem = await self._problem(names, queues) if names else None
            if problem is None:
                self._kept.update(names)
                return refused
            return refused | dict.fromkeys(names, problem)

    async def _problem(self, topics: Sequence[str], queues: Queues) -> PublishOutcome | None:
        if self._makes_queues:
            untaken = [topic for topic in topics if topic in self._untaken]
            try:
                await self._create(queues, untaken)
                self._untaken.difference_update(untaken)
            except ChannelAccessRefused:
                # The right to publish is enough where somebody else has made them.
                return await queues.problem()
        return await queues.problem()

    async def _create(self, queues: Queues, topics: Sequence[str]) -> Sequence[str]:
        """Make what is missing; new queues would not outlive a crash at once."""
        made = await queues.create(topics)
        if made:
            self._settling.begin(topics)
        return made

    def _wire(self, envelope: MessageEnvelope) -> WireMessage | Refused:
        try:
            place = partition_for(envelope, self._partitions)
            if envelope.routing_key is not None:
                place = envelope.routing_key + place.removeprefix(envelope.topic or "")
            return wire_message(envelope, place, self._mode)
        except ENCODING_ERRORS:
            return refuse_odd_text(envelope)

    def _learn(self, outcomes: Sequence[PublishOutcome]) -> None:
        """Look again, before the next messages, at topics that could not take these."""
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                self._kept.discard(outcome.topic or "")

    async def _queues(self) -> Queues:
        connection, _ = await self._standing()
        return self._queues_of(connection)

    def _queues_of(self, connection: Connection) -> Queues:
        return Queues(connection.client, self._exchange, self._partitions)

    async def _standing(self) -> tuple[Connection, PublishingChannel]:
        """Return a connection that stands and its channel, or raise.

        A call that was made before the bus was closed opens none, and leaves none open.
        """
        closings = self._closings
        async with self._connecting:
            if self._connection is None or self._connection.ended:
                self._connection = None
                self._connection = await self._opened(closings)
            # It may be dropped while its channel opens.
            connection = self._connection
            channel, is_new = await connection.channel()
            if closings != self._closings:
                raise ConnectionError("the bus was closed")
            if is_new:
                self._kept.clear()
            return connection, channel

    async def _opened(self, closings: int) -> Connection:
        connection = self._new_connection()
        try:
            if closings == self._closings:
                await connection.open()
        except BaseException:
            self._drop(connection)
            raise
        if closings != self._closings:
            self._drop(connection)
            raise ConnectionError("the bus was closed")
        return connection

    def _new_connection(self, wrap: Wrap | None = None) -> Connection:
        return Connection(self._address, self._exchange, self._options, wrap)

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
