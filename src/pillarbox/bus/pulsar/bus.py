"""Publish to Pulsar."""

import asyncio
import http.client
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

from pulsar import Client, PulsarException, TopicNotFound

from pillarbox.bus.loopback import all_loopback, plaintext_weakness, unverified_weakness
from pillarbox.bus.message_bus import Capabilities
from pillarbox.bus.one_by_one import publish_one_by_one
from pillarbox.bus.outcome import PublishOutcome, Refused, Unavailable
from pillarbox.bus.pulsar.admin import Admin, AdminRefused
from pillarbox.bus.pulsar.client import admin_url_of, hosts_of, make_client, shut_down, verifies
from pillarbox.bus.pulsar.messages import builder
from pillarbox.bus.pulsar.numbered import Numbered
from pillarbox.bus.pulsar.outcomes import not_opened
from pillarbox.bus.pulsar.producer import ProducerLife
from pillarbox.bus.pulsar.producers import Opened, Producers, ProducersClosed, TooManyProducers
from pillarbox.bus.pulsar.settings import checked_limit, checked_settings, producer_settings
from pillarbox.bus.pulsar.subscription import Access, PulsarSubscription
from pillarbox.bus.pulsar.subscription_consumer import SubscriptionType, checked_type
from pillarbox.bus.pulsar.subscription_survey import (
    backlog,
    listening_weaknesses,
    longest_redelivery,
    lost_history,
)
from pillarbox.bus.subscription import Subscription, SubscriptionRequest
from pillarbox.errors import BusUnreachable, InvalidConfig, InvalidTopic
from pillarbox.event.cloudevents import ContentMode
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.rules import PULSAR, check_topic

_ANSWER_BY: Final = 0.9  # of the limit, so that `publish` has returned when it is over
_REACH_BY: Final = 0.7
_CLOSE_SECONDS: Final = 3.0
_FAILURES: Final = (
    TimeoutError,
    OSError,
    PulsarException,
    ProducersClosed,
    TooManyProducers,
    AdminRefused,
    http.client.HTTPException,
)


class PulsarMessageBus:
    """Publish to Pulsar; each message is acknowledged by the bookies before it is accepted.

        bus = PulsarMessageBus("pulsar://localhost:6650")

    Takes a URL or the caller's own `pulsar.Client`, which it leaves open. `options` are those of
    `pulsar.Client`, for security; `settings` those of its producers, as `compression_type`. Topics
    without a namespace are those of `namespace`. With `dedup` messages are numbered, so that one
    sent again through this bus after a lost answer is not stored twice, if the namespace has
    deduplication on. The numbers are this bus's own: a copy through another bus is stored.

    It can be listened to as well, by a Key_Shared or Failover subscription of each consumer's name.
    """

    def __init__(
        self,
        client: Client | str,
        *,
        dedup: bool = False,
        service: str = "pillarbox",
        namespace: str = "public/default",
        publish_timeout: timedelta = timedelta(seconds=10),
        content_mode: ContentMode = "binary",
        partitions: int | None = None,
        max_producers: int = 128,
        subscription_type: SubscriptionType = "key_shared",
        admin_url: str | None = None,
        admin_token: str | None = None,
        options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._limit = checked_limit(publish_timeout)
        self._seconds = publish_timeout.total_seconds()
        self._own = self._owned = isinstance(client, str)
        self._make_client = _maker(client, publish_timeout, options or {})
        self._subscription_type: SubscriptionType = checked_type(subscription_type)
        self._verifies = verifies(options or {})
        self._client = self._make_client()
        self._url: str = self._client.get_service_info().service_url
        self._shown = ",".join(f"pulsar://{host}" for host in hosts_of(self._url))
        self._namespace = namespace
        self._partitions = partitions
        self._max_producers = max_producers
        self._dedup = dedup
        found = admin_url or admin_url_of(self._url)
        self._admin = None if found is None else Admin(found, admin_token)
        # No other process has the name, so its numbers are this bus's alone.
        name = f"{service}-{secrets.token_hex(6)}" if dedup else None
        self._settings = producer_settings(checked_settings(settings or {}), self._limit, name)
        self._build = builder(content_mode, grouped=not dedup)
        self._numbered = Numbered(self._build) if dedup else None
        # With `dedup` copies of this bus are removed, those of another one are not.
        self._capabilities = Capabilities(PULSAR, publish_timeout)
        self._open_producers: Producers | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What this bus can do."""
        return self._capabilities

    async def start(self) -> Sequence[str]:
        """Reach the cluster; return what of the namespace would lose or repeat events."""
        seconds = self._seconds * _REACH_BY
        probe = self._address("pillarbox")
        try:
            async with asyncio.timeout(seconds):
                await self._producers.in_thread(self._client.get_topic_partitions, probe)
        except TopicNotFound:
            pass  # an answer as well: the broker makes no topics by itself
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error
        return [*self._exposure(), *await self._namespace_weaknesses(seconds)]

    async def publish(
        self, batch: Sequence[MessageEnvelope], *, one_by_one: bool = False
    ) -> Sequence[PublishOutcome]:
        """Hand over a batch; the outcomes come in the same order."""
        deadline = asyncio.get_running_loop().time() + self._seconds * _ANSWER_BY
        unused = self._producers.close_unused()
        if self._numbered is not None:
            self._numbered.forget(unused)
        if not one_by_one:
            return await self._publish(batch, deadline)

        async def publish_alone(message: MessageEnvelope) -> PublishOutcome:
            return (await self._publish((message,), deadline))[0]

        return await publish_one_by_one(batch, deadline, publish_alone)

    async def apply(self, topics: Sequence[str]) -> Sequence[str]:
        """Create the topics that are missing; needs the admin interface."""
        seconds = self._seconds
        try:
            async with asyncio.timeout(seconds):
                made = [topic for topic in topics if await self._create(topic, seconds)]
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error
        return made

    async def prepare(self, consumers: Sequence[SubscriptionRequest]) -> Sequence[str]:
        """Create the topics and subscriptions of consumers that are missing."""
        admin, seconds = self._admin, self._seconds
        made: list[str] = []
        if admin is None:
            raise InvalidConfig(
                "bus",
                "has no admin_url, by which subscriptions are made",
                "give it, or start every consumer once before the first event",
            )
        for request in consumers:
            made += await self.apply(request.topics)
            for topic in request.topics:
                work = (admin.subscribe, self._address(topic), request.consumer, seconds)
                try:
                    if await self._producers.in_thread(*work):
                        made.append(f"{request.consumer} on {topic}")
                except _FAILURES as error:
                    raise BusUnreachable(self._shown, _reason(error)) from error
        return made

    async def forgotten(self, topics: Sequence[str]) -> Sequence[str]:
        """Say which topics let go of messages that every subscription has taken."""
        addresses = [self._address(check_topic(topic, PULSAR)) for topic in topics]
        names = [address.partition("://")[2] for address in addresses]
        if self._admin is None:
            return [f"without admin_url nobody sees how long {' and '.join(names)} keep events"]
        work = (lost_history, self._admin, names, self._seconds * _REACH_BY)
        try:
            async with asyncio.timeout(self._seconds):
                return cast("list[str]", await self._producers.in_thread(*work))
        except _FAILURES as error:
            raise BusUnreachable(self._shown, _reason(error)) from error

    def subscribe(self, request: SubscriptionRequest) -> Subscription:
        """Make a subscription with a client of its own, unless the caller has given one."""
        access = Access(
            self._make_client,
            self._owned,
            self._listening_weaknesses,
            self._longest_redelivery,
            self._backlog,
            self._shown,
            self._seconds,
        )
        topics = {self._address(check_topic(topic, PULSAR)): topic for topic in request.topics}
        return PulsarSubscription(
            access,
            request.consumer,
            topics,
            kind=self._subscription_type,
            window=request.window,
        )

    async def close(self) -> None:
        """Close the producers, and the client if it is ours; messages without an answer are unknown."""
        producers, self._open_producers = self._producers, None
        await producers.close()
        if self._own:
            self._own = False
            await shut_down(self._client, _CLOSE_SECONDS, producers.threads)

    async def _publish(
        self, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        if not batch:
            return []
        by_topic: dict[str | None, list[MessageEnvelope]] = {}
        for message in batch:
            by_topic.setdefault(message.topic, []).append(message)
        if len(by_topic) == 1:
            [(topic, messages)] = by_topic.items()
            return await self._publish_to(topic, messages, deadline)
        answers = await asyncio.gather(
            *(self._publish_to(topic, part, deadline) for topic, part in by_topic.items())
        )
        parts = {topic: iter(part) for topic, part in zip(by_topic, answers, strict=True)}
        return [next(parts[message.topic]) for message in batch]

    async def _publish_to(
        self, topic: str | None, batch: Sequence[MessageEnvelope], deadline: float
    ) -> list[PublishOutcome]:
        try:
            checked = check_topic(topic or "", PULSAR)
        except InvalidTopic as error:
            return [Refused(error.code, str(error))] * len(batch)
        if self._numbered is not None:
            return await self._numbered.publish(self._reach, checked, batch, deadline)
        life = await self._reach(checked)
        if isinstance(life, Unavailable):
            return [life] * len(batch)
        sent = await life.hand_over(batch, self._build, deadline)
        return await life.answers(sent, len(batch), deadline)

    async def _reach(self, topic: str) -> ProducerLife | Unavailable:
        """Return a producer that is connected, or why there is none, within a part of the limit."""
        try:
            async with asyncio.timeout(self._seconds * _REACH_BY):
                return await self._producers.get(topic, self._address(topic))
        except TooManyProducers as error:
            return Unavailable("too-many-producers", str(error), topic)
        except _FAILURES as error:
            return not_opened(error, topic)

    async def _create(self, topic: str, seconds: float) -> bool:
        address = self._address(check_topic(topic, PULSAR))
        if self._admin is not None:
            work = (self._admin.create, address, self._partitions, seconds)
            return bool(await self._producers.in_thread(*work))
        # The broker makes the topic by itself, unless that is switched off there.
        await self._producers.get(topic, address)
        return True

    async def _namespace_weaknesses(self, seconds: float) -> Sequence[str]:
        if self._admin is None:
            return self._unseen("copies, retention and deduplication")
        look = partial(self._admin.weaknesses, self._namespace, seconds, dedup=self._dedup)
        return await self._seen(look, seconds)

    async def _listening_weaknesses(self) -> Sequence[str]:
        """Say who can read along, and what of the namespace would lose or repeat messages."""
        if self._admin is None:
            return [*self._exposure(), *self._unseen("what becomes of messages that wait")]
        seconds = self._seconds * _REACH_BY
        look = partial(listening_weaknesses, self._admin, self._namespace, seconds)
        return [*self._exposure(), *await self._seen(look, seconds)]

    async def _backlog(self, consumer: str, addresses: Sequence[str]) -> int | None:
        """Count what a subscription has not acknowledged; None if that cannot be seen."""
        return cast("int | None", await self._asked(backlog, addresses, consumer))

    async def _longest_redelivery(self, addresses: Sequence[str]) -> timedelta | None:
        """Say how late a message may come again; None if that never ends, or cannot be seen."""
        return cast("timedelta | None", await self._asked(longest_redelivery, addresses))

    async def _asked(
        self, question: Callable[..., Any], addresses: Sequence[str], *more: str
    ) -> Any:
        """Ask the admin interface about topics; None if there is no answer."""
        if self._admin is None:
            return None
        names = [address.partition("://")[2] for address in addresses]
        ask = partial(question, self._admin, names, *more, self._seconds * _REACH_BY)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._producers.in_thread(ask)
        except _FAILURES:
            return None

    def _unseen(self, what: str) -> list[str]:
        hint = f"give admin_url to have {what} checked"
        return [f"the settings of {self._namespace} were not looked at; {hint}"]

    async def _seen(self, look: Callable[[], list[str]], seconds: float) -> list[str]:
        try:
            async with asyncio.timeout(seconds):
                return cast("list[str]", await self._producers.in_thread(look))
        except _FAILURES as error:
            return [f"the settings of {self._namespace} cannot be looked at: {_reason(error)}"]

    def _exposure(self) -> Sequence[str]:
        """Say whether others can read along, or pass for the broker."""
        if self._url.startswith("pulsar+ssl:"):
            return [] if self._verifies else unverified_weakness(self._shown)
        here = all_loopback(hosts_of(self._url))
        return plaintext_weakness(self._shown, "use pulsar+ssl://host:6651", here=here)

    def _address(self, topic: str) -> str:
        if "/" not in topic:
            return f"persistent://{self._namespace}/{topic}"
        return topic if "://" in topic else f"persistent://{topic}"

    @property
    def _producers(self) -> Producers:
        if self._open_producers is None:
            self._open_producers = Producers(
                self._client, self._settings, self._max_producers, self._opened
            )
        return self._open_producers

    def _opened(self, topic: str, opened: Opened) -> None:
        if self._numbered is not None:
            self._numbered.opened(topic, opened)


def _maker(
    client: Client | str, limit: timedelta, options: Mapping[str, Any]
) -> Callable[[], Client]:
    if isinstance(client, str):
        return partial(make_client, client, limit, options)
    return lambda: client


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
