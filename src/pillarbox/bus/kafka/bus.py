"""Publish to Kafka."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from pillarbox.bus.handover import CLOSED, HELD_BACK
from pillarbox.bus.kafka.gate import Gate
from pillarbox.bus.kafka.login import Credentials, Login
from pillarbox.bus.kafka.producer import ProducerLife
from pillarbox.bus.kafka.settings import (
    ClientSetting,
    admin_settings,
    checked_settings,
    exposure,
    producer_settings,
)
from pillarbox.bus.kafka.subscription import Ground, KafkaSubscription
from pillarbox.bus.kafka.topics import Topics
from pillarbox.bus.loopback import all_loopback, host_of
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome, Unavailable
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.errors import BusUnreachable, InvalidTopic
from pillarbox.event.cloudevents import (
    ContentMode,
    Headers,
    binary_headers,
    is_structured,
    structured_body,
    structured_headers,
)
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import KAFKA

_ANSWER_BY: Final = 0.9  # of the limit, so that `publish` has returned when it is over
_REACH_BY: Final = 0.4
_CLOSE_SECONDS: Final = 5.0

_headers: Final = binary_headers("ce_")


def _binary(envelope: MessageEnvelope) -> tuple[bytes | None, Headers]:
    data = envelope.data
    return (envelope.body() if data is None else data), _headers(envelope)


def _structured(envelope: MessageEnvelope) -> tuple[bytes | None, Headers]:
    if not is_structured(envelope, "structured"):
        return _binary(envelope)
    return structured_body(envelope), structured_headers(envelope)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Call:
    batch: tuple[MessageEnvelope, ...]
    deadline: float
    made: int

    def topics(self) -> list[str]:
        """Return the topics of the messages, each once."""
        found = dict.fromkeys(message.topic for message in self.batch)
        if None in found:
            raise InvalidTopic("topic", "is missing", "name the topic each message goes to")
        return [topic for topic in found if topic is not None]

    def without(self, refused: Mapping[str, Unavailable]) -> Sequence[MessageEnvelope]:
        """Return the messages that may be sent."""
        if not refused:
            return self.batch
        return [message for message in self.batch if message.topic not in refused]

    def seconds_left(self) -> float:
        return max(0.01, self.deadline - asyncio.get_running_loop().time())


class KafkaMessageBus:
    """Publish to Kafka, idempotent and acknowledged by all replicas in sync.

        bus = KafkaMessageBus("localhost:9092")

    `settings` are those of librdkafka, for security and tuning; what the promise rests on is not
    among them. `credentials` returns user and password and is asked again when a connection fails.
    Missing topics are made by `apply`, and by themselves when all servers are on this
    machine. Messages are handed over to one producer; the first that fails ends it, so that no later
    message of its key is stored, and the next call gets a new producer.
    """

    def __init__(
        self,
        servers: str,
        *,
        settings: Mapping[str, ClientSetting] | None = None,
        credentials: Credentials | None = None,
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        partitions: int = 6,
    ) -> None:
        self._servers = servers
        self._client = {"bootstrap.servers": servers, **checked_settings(settings or {})}
        self._login = Login(credentials)
        self._limit = publish_timeout
        self._encode = _binary if content_mode == "binary" else _structured
        self._partitions = partitions
        self._makes_topics = all_loopback(host_of(part) for part in servers.split(","))
        self._capabilities = Capabilities(KAFKA, publish_timeout, pipelines_keys=True)
        self._gate = Gate()
        self._careful_turn = asyncio.Lock()
        self._life: ProducerLife | None = None
        self._careful: ProducerLife | None = None
        self._farewells: set[asyncio.Future[None]] = set()
        self._cluster: Topics | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    async def start(self) -> Sequence[str]:
        """Reach the cluster; return which topics would lose acknowledged events."""
        seconds = self._limit.total_seconds() * _REACH_BY
        try:
            # It connects meanwhile; a message that finds it unconnected would wait half a second.
            self._life = self._standing(self._life, gapless=True)
            said = await asyncio.to_thread(self._topics.weaknesses, seconds)
        except KafkaException as error:
            raise self._unreachable(error) from error
        return [*exposure(self._client, here=self._makes_topics), *said]

    def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Coroutine[Any, Any, Sequence[PublishOutcome]]:
        """Hand over a batch; the outcomes come in the same order.

        The call belongs to the producer that stands when it is made: if that one ends before the
        messages are handed over, they are not sent.
        """
        deadline = asyncio.get_running_loop().time() + self._limit.total_seconds() * _ANSWER_BY
        call = _Call(tuple(batch), deadline, self._gate.now())
        if one_by_one:
            return self._publish_one_by_one(call)
        try:
            self._life = self._standing(self._life, gapless=True)
        except KafkaException as error:
            return self._refuse_all(call, error.args[0])
        self._life.enter(call)
        return self._publish(call, self._life)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create the topics that are missing."""
        seconds = self._limit.total_seconds()
        try:
            return await asyncio.to_thread(self._topics.create, topics, seconds)
        except KafkaException as error:
            raise self._unreachable(error) from error

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say which partitions do not begin with their first message."""
        seconds = self._limit.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.to_thread(self._topics.forgotten, topics, seconds)
        except KafkaException as error:
            raise self._unreachable(error) from error
        except TimeoutError as error:
            raise BusUnreachable(f"kafka://{self._servers}", "no answer in time") from error

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make a member of the consumer group that is named as the consumer."""
        ground = Ground(
            shown=f"kafka://{self._servers}",
            client=self._client,
            login=self._login,
            topics=lambda: self._topics,
            here=self._makes_topics,
            seconds=self._limit.total_seconds() * _REACH_BY,
        )
        return KafkaSubscription(ground, request)

    async def close(self) -> None:
        """End both producers; messages without an answer are unknown."""
        for life in (self._life, self._careful):
            if life is not None:
                self._bury(life)
        self._life = self._careful = None
        self._let_go_of_cluster()
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=_CLOSE_SECONDS)

    async def _publish(self, call: _Call, life: ProducerLife) -> Sequence[PublishOutcome]:
        try:
            return await self._published(call, life)
        finally:
            life.leave(call)

    async def _published(self, call: _Call, life: ProducerLife) -> Sequence[PublishOutcome]:
        if not call.batch:
            return []
        async with self._gate.turn:
            refused = await self._look_at(call, life)
            sent = call.without(refused)
            if life.failed or asyncio.get_running_loop().time() >= call.deadline:
                life.fail()
                await life.over()
                return [HELD_BACK] * len(call.batch)
            handover = await life.hand_over(sent, call.deadline) if sent else None
        with self._gate.told(refused):
            answers = () if handover is None else await life.answered(handover)
        if life.ended:
            self._learn(answers)
        if not refused:
            return answers
        rest = iter(answers)
        return [refused.get(message.topic or "") or next(rest) for message in call.batch]

    def _refuse_all(
        self, call: _Call, error: KafkaError
    ) -> Coroutine[Any, Any, Sequence[PublishOutcome]]:
        """Answer a call for which no producer could be made: a file of its settings is missing."""
        refusal = Unavailable(error.name(), error.str())
        self._gate.refuse(refusal)
        held = ExitStack()
        held.enter_context(self._gate.told((None,)))

        async def answer() -> Sequence[PublishOutcome]:
            with held:
                return [refusal] * len(call.batch)

        return answer()

    async def _publish_one_by_one(self, call: _Call) -> Sequence[PublishOutcome]:
        async def publish_alone(message: MessageEnvelope) -> PublishOutcome:
            return await self._publish_alone(call, message)

        async with self._careful_turn:
            outcomes = await publish_one_by_one(call.batch, call.deadline, publish_alone)
        self._learn(outcomes)
        return outcomes

    async def _publish_alone(self, call: _Call, message: MessageEnvelope) -> PublishOutcome:
        try:
            life = self._careful = self._standing(self._careful, gapless=False)
        except KafkaException as error:
            return Unavailable(error.args[0].name(), error.args[0].str())
        alone = _Call((message,), call.deadline, call.made)
        async with self._gate.turn:
            refused = await self._look_at(alone, life)
        if refused:
            return refused[message.topic or ""]
        return (await life.answered(await life.hand_over((message,), call.deadline)))[0]

    async def _look_at(self, call: _Call, life: ProducerLife) -> Mapping[str, Unavailable]:
        """Return the topics of a call that cannot be sent to, each with the reason."""
        topics = call.topics()
        if life.ended:
            return {}
        refused = self._gate.refusals(topics, call.made)
        unseen = [topic for topic in self._gate.unseen(topics) if topic not in refused]
        if unseen or not (life.reached or refused):
            seconds = min(self._limit.total_seconds() * _REACH_BY, call.seconds_left())
            asked = unseen or topics
            for problem in await asyncio.to_thread(self._problems, self._topics, asked, seconds):
                self._gate.refuse(problem)
            refused = self._gate.refusals(topics, call.made)
            for topic in unseen:
                if topic not in refused:
                    self._gate.admit(topic)
        life.reached = life.reached or len(refused) < len(topics)
        return refused

    def _problems(
        self, cluster: Topics, topics: Sequence[str], seconds: float
    ) -> list[Unavailable]:
        """Look at topics, in a thread; on this machine make the missing ones."""
        try:
            if self._makes_topics:
                cluster.create(topics, seconds)
            found = [cluster.problem(topic, seconds) for topic in topics]
        except KafkaException as error:
            reason = cluster.why(error)
            return [Unavailable(reason.name(), reason.str())]
        return [problem for problem in found if problem is not None]

    def _learn(self, outcomes: Sequence[PublishOutcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                self._gate.forget(outcome.topic)

    def _standing(self, life: ProducerLife | None, *, gapless: bool) -> ProducerLife:
        """Return the life that takes the messages of a call made now."""
        if life is not None and not life.retired:
            return life
        if life is not None:
            self._bury(life)

        def settings(linger: int) -> Mapping[str, object]:
            return producer_settings(self._client, self._limit, gapless=gapless, linger=linger)

        partitions = self._topics.partitions
        return ProducerLife(settings, self._encode, self._login, partitions, gapless=gapless)

    def _bury(self, life: ProducerLife) -> None:
        farewell = life.end(CLOSED)
        if not farewell.done():
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)

    def _let_go_of_cluster(self) -> None:
        """Have the client for topics freed, in a thread: it joins threads of its own."""
        held = [self._cluster]
        self._cluster = None
        farewell = asyncio.ensure_future(asyncio.to_thread(held.clear))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    @property
    def _topics(self) -> Topics:
        if self._cluster is None:
            self._cluster = Topics(admin_settings(self._client), self._partitions, self._login)
        return self._cluster

    def _unreachable(self, error: KafkaException) -> BusUnreachable:
        reason = error.args[0] if self._cluster is None else self._cluster.why(error)
        return BusUnreachable(f"kafka://{self._servers}", reason.str())
