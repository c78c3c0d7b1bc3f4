"""Receive from Kafka as one member of a consumer group."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from pillarbox.bus.arrivals import Arrivals
from pillarbox.bus.kafka.login import Login
from pillarbox.bus.kafka.settings import ClientSetting, exposure
from pillarbox.bus.kafka.subscription_message import incoming
from pillarbox.bus.kafka.subscription_poller import BATCH, Place, Poller
from pillarbox.bus.kafka.subscription_settings import consumer_settings
from pillarbox.bus.kafka.subscription_share import FURTHEST, Share
from pillarbox.bus.kafka.subscription_survey import Survey, survey
from pillarbox.bus.kafka.topics import Topics
from pillarbox.bus.subscription import Delivery, Reception, Revoked, SubscriptionRequest
from pillarbox.errors import BusUnreachable

_log = logging.getLogger("pillarbox.bus.kafka")

_SILENCE: Final = 1.0
_COMMIT_AFTER: Final = 0.1
_COMMIT_AGAIN_AFTER: Final = 0.5
_CLOSE_SECONDS: Final = 15.0
_ASK_SECONDS: Final = 2.0
_FEW: Final = BATCH


@dataclass(frozen=True, slots=True)
class Ground:
    """What a bus knows of its cluster."""

    shown: str
    client: Mapping[str, ClientSetting]
    login: Login
    topics: Callable[[], Topics]
    here: bool
    seconds: float


class KafkaSubscription:
    """One member of a consumer group; each partition has one member at a time.

    Positions are committed a moment after the acknowledgement, up to the lowest unfinished message,
    and before a partition goes to another member. What is given back is delivered again from here.
    """

    def __init__(self, ground: Ground, request: SubscriptionRequest) -> None:
        self._ground = ground
        self._request = request
        self._reception = Reception(orders_keys=True, hand_back_limit=None, longest_redelivery=None)
        self._arrivals = Arrivals(_place_of)
        self._shares: dict[Place, Share] = {}
        self._stopped: set[Place] = set()
        self._poller: Poller | None = None
        self._revoked: Revoked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._committing = False
        self._closing = False

    @property
    def reception(self) -> Reception:
        """What this subscription can do; known once it has started."""
        return self._reception

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Join the group; return what a consumer could miss."""
        found = await self._look()
        self._reception = Reception(
            orders_keys=True, hand_back_limit=None, longest_redelivery=found.kept
        )
        self._revoked = revoked
        settings = consumer_settings(self._ground.client, self._request.consumer)
        try:
            self._poller = Poller(settings, self._request.topics, self._ground.login, self)
        except KafkaException as error:
            raise BusUnreachable(self._ground.shown, error.args[0].str()) from error
        self._poller.start()
        return [*exposure(self._ground.client, here=self._ground.here), *found.weak]

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Wait for messages, for a second at most."""
        if self._poller is not None and not self._closing:
            self._poller.check()
        taken = await self._arrivals.take(most, _SILENCE)
        if self._poller is not None and len(self._arrivals) < _FEW:
            self._poller.want(True)
        return taken

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Note what is finished; the positions are committed within a moment."""
        for delivery in done:
            share, offset = delivery.token
            if not share.lost:
                share.finish(offset)
        self._commit_soon(_COMMIT_AFTER)

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Deliver messages again, before later ones of their partition; another member those that go."""
        self._arrivals.put_back(found for found in unfinished if not found.token[0].leaving)

    async def lag(self) -> int | None:
        """Count what lies behind the messages in hand, as far as partitions are ours.

        Without any nobody knows: the group may not have shared them yet.
        """
        if self._poller is None or self._closing or not self._shares:
            return None
        read = self._read()
        behind = await self._poller.ask(lambda consumer: _behind(consumer, read))
        return None if behind is None else behind + len(self._arrivals)

    async def group_lag(self) -> int | None:
        """Count what lies behind the group, in the partitions of other members as they have committed."""
        if self._poller is None or self._closing or not self._shares:
            return None
        read, topics = self._read(), self._request.topics
        behind = await self._poller.ask(
            lambda consumer: _behind(consumer, {**_unread(consumer, topics), **read})
        )
        return None if behind is None else behind + len(self._arrivals)

    async def is_at_end(self) -> bool:
        """Tell whether the group has read all partitions, also those of other members."""
        return await self.group_lag() == 0

    async def close(self) -> None:
        """Commit what is finished and leave the group."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._poller is not None and not await self._poller.stop(_CLOSE_SECONDS):
            _log.warning("kafka_close_timed_out", extra={"consumer": self._request.consumer})
        for share in self._shares.values():
            share.leaving = share.lost = True
        self._arrivals.drop({share.name for share in self._shares.values()})

    def arrived(self, messages: Sequence[Message], ends: Mapping[Place, int]) -> None:
        """Take messages from the client, in order within their partitions."""
        for place, end in ends.items():
            if place in self._shares:
                self._shares[place].end = end
        self._arrivals.put([found for message in messages if (found := self._delivery(message))])
        self._hold_back()
        if self._poller is not None:
            self._poller.want(len(self._arrivals) < max(self._request.window, BATCH))

    def ended(self, ends: Mapping[Place, int]) -> None:
        """Remember how far partitions were read: their last message may lie before their end."""
        for place, end in ends.items():
            if place in self._shares:
                self._shares[place].reached = end

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        """Begin with partitions."""
        for place in places:
            self._shares[place.topic, place.partition] = Share(place.topic, place.partition)

    async def let_go(
        self, places: Sequence[TopicPartition], *, lost: bool
    ) -> Sequence[TopicPartition]:
        """Have the consumer finish with partitions; return the positions to commit."""
        keys = [(place.topic, place.partition) for place in places]
        shares = [self._shares[key] for key in keys if key in self._shares]
        names = [share.name for share in shares]
        self._arrivals.drop(names)
        for share in shares:
            share.leaving, share.lost = True, lost
        try:
            if names and self._revoked is not None:
                await self._revoked(names)
        finally:
            for share in shares:
                share.lost = True
                self._shares.pop(share.place, None)
                self._stopped.discard(share.place)
        return [] if lost else _positions(shares)

    def committed(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """Remember which positions the group has; try again with those that failed."""
        self._committing = False
        failed = error is not None
        for place in places:
            share = self._shares.get((place.topic, place.partition))
            if place.error is not None:
                failed = True
            elif error is None and share is not None:
                share.committed = max(share.committed, place.offset)
        self._let_on()
        self._commit_soon(_COMMIT_AGAIN_AFTER if failed else _COMMIT_AFTER)

    def _read(self) -> dict[Place, int | None]:
        return {share.place: share.read for share in self._shares.values()}

    def _delivery(self, message: Any) -> Delivery | None:
        share = self._shares.get((message.topic(), message.partition()))
        if share is None:
            return None
        offset = message.offset()
        if share.next is not None and offset < share.next:
            share = self._follow_anew(share, share.next)
        redelivered = share.came(offset)
        return Delivery(incoming(message), share.name, str(offset), redelivered, (share, offset))

    def _follow_anew(self, old: Share, end: int) -> Share:
        """Follow a partition that went back: its topic was made anew, or its log was cut off.

        What the old share waits for would keep the position back for ever.
        """
        old.leaving = old.lost = True
        made = self._shares[old.place] = Share(*old.place)
        made.end = end
        return made

    def _hold_back(self) -> None:
        """Stop partitions that have run far ahead of their committed position."""
        far = [share.place for share in self._shares.values() if share.ahead() >= FURTHEST]
        if far and self._poller is not None and not self._closing:
            self._stopped.update(far)
            self._poller.halt(far)

    def _let_on(self) -> None:
        """Let partitions go on whose committed position has followed."""
        near = [p for p in self._stopped if self._shares[p].ahead() < FURTHEST // 2]
        if near and self._poller is not None and not self._closing:
            self._stopped.difference_update(near)
            self._poller.let_on(near)

    def _commit_soon(self, seconds: float) -> None:
        if self._timer is None and not self._committing and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._commit)

    def _commit(self) -> None:
        self._timer = None
        positions = _positions(self._shares.values())
        if not positions or self._poller is None or self._closing:
            return
        self._committing = True
        self._poller.commit(positions)

    async def _look(self) -> Survey:
        topics = self._ground.topics()
        try:
            return await asyncio.to_thread(self._surveyed, topics)
        except KafkaException as error:
            raise BusUnreachable(self._ground.shown, topics.why(error).str()) from error

    def _surveyed(self, topics: Topics) -> Survey:
        if self._ground.here:
            topics.create(self._request.topics, self._ground.seconds)
        return survey(topics, self._request.topics, self._ground.seconds)


def _place_of(delivery: Delivery) -> tuple[str, int]:
    return delivery.partition, delivery.token[1]


def _positions(shares: Iterable[Share]) -> list[TopicPartition]:
    return [
        TopicPartition(share.place[0], share.place[1], offset)
        for share in shares
        if (offset := share.to_commit()) is not None
    ]


def _unread(consumer: Any, topics: Sequence[str]) -> dict[Place, None]:
    """Name all partitions of topics; it blocks."""
    found = [consumer.list_topics(topic, _ASK_SECONDS).topics[topic] for topic in topics]
    return {(topic.topic, number): None for topic in found for number in topic.partitions}


def _behind(consumer: Any, read: Mapping[Place, int | None]) -> int:
    """Count what the cluster has behind the positions read so far; it blocks."""
    unread = [TopicPartition(*place) for place, position in read.items() if position is None]
    known = consumer.committed(unread, _ASK_SECONDS) if unread else ()
    begin = {(place.topic, place.partition): place.offset for place in known}
    behind = 0
    for place, position in read.items():
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), _ASK_SECONDS)
        behind += high - max(low, begin[place] if position is None else position)
    return behind
