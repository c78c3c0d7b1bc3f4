"""Listen to Pulsar."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from pulsar import Client, PulsarException, TopicNotFound

from pillarbox.bus.arrivals import Arrivals
from pillarbox.bus.pulsar.client import shut_down
from pillarbox.bus.pulsar.subscription_consumer import SubscriptionType, ThreadedConsumer
from pillarbox.bus.pulsar.subscription_message import Origin, delivery_of
from pillarbox.bus.pulsar.threads import Threads
from pillarbox.bus.subscription import Delivery, Reception, Revoked
from pillarbox.errors import BusUnreachable, InvalidConfig

_log = logging.getLogger("pillarbox.bus.pulsar")

_SILENCE: Final = 1.0
_AGAIN_SECONDS: Final = 0.5
_CLOSE_SECONDS: Final = 3.0
_PARTITION: Final = "-partition-"


@dataclass(frozen=True, slots=True)
class Access:
    """How a subscription reaches its cluster; `owned` clients are closed with it."""

    client: Callable[[], Client]
    owned: bool
    look: Callable[[], Awaitable[Sequence[str]]]
    longest_redelivery: Callable[[Sequence[str]], Awaitable[timedelta | None]]
    backlog: Callable[[str, Sequence[str]], Awaitable[int | None]]
    shown: str
    seconds: float


class PulsarSubscription:
    """Be one consumer of a subscription; `topics` are the topics as they were asked for, by address.

    With Key_Shared the broker gives the messages of a key to one consumer, and to another one only
    when the first has acknowledged those that it has. What is acknowledged in part of a batch comes
    again as a whole batch after a member is gone, unless the broker keeps the index of batches; the
    inbox removes what was done.
    """

    def __init__(
        self,
        access: Access,
        consumer: str,
        topics: Mapping[str, str],
        *,
        kind: SubscriptionType,
        window: int,
    ) -> None:
        self._access = access
        self._name, self._topics = consumer, topics
        self._consumer = ThreadedConsumer(access.client, consumer, [*topics], kind, window)
        self._reception = Reception(
            orders_keys=kind == "key_shared", hand_back_limit=None, longest_redelivery=None
        )
        self._arrivals = Arrivals(lambda delivery: delivery.token.arrival)
        self._held: dict[int, Delivery] = {}
        self._came = 0
        self._thread = Threads(1, "pillarbox-pulsar-consumer")
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def reception(self) -> Reception:
        """What this subscription can do."""
        return self._reception

    async def start(self, revoked: Revoked) -> Sequence[str]:
        """Subscribe; the broker settles by itself who has which key, so nothing is revoked."""
        del revoked
        said = await self._access.look()
        try:
            async with asyncio.timeout(self._access.seconds):
                await self._thread.run(self._consumer.open)
        except TopicNotFound as error:
            names = ", ".join(self._topics.values())
            remedy = "run `pillarbox bus apply`, or mend the names"
            raise InvalidConfig("topics", f"{names} are not all there", remedy) from error
        except (TimeoutError, OSError, PulsarException) as error:
            raise BusUnreachable(self._access.shown, _reason(error)) from error
        # Asked for now: the topics are there.
        longest = await self._access.longest_redelivery([*self._topics])
        self._reception = replace(self._reception, longest_redelivery=longest)
        return said

    async def receive(self, most: int) -> Sequence[Delivery]:
        """Let the thread receive; a cancelled call leaves what comes to the next one."""
        if not (self._arrivals or self._reading or self._closed):
            self._reading = asyncio.create_task(self._read(most))
        return await self._arrivals.take(most, _SILENCE)

    async def acknowledge(self, done: Sequence[Delivery]) -> None:
        """Tell the broker; the client sends it within a moment, many together."""
        if self._closed:
            return
        for delivery in done:
            if self._held.pop(delivery.token.arrival, None) is not None:
                delivery.token.consumer.acknowledge_async(delivery.token.message_id, _unheard)

    async def give_back(self, unfinished: Sequence[Delivery]) -> None:
        """Deliver these again from here.

        A negative acknowledgement would have them come after a delay, behind later messages of
        their keys that are on their way already.
        """
        if not self._closed:
            self._arrivals.put_back(d for d in unfinished if d.token.arrival in self._held)

    async def lag(self) -> int | None:
        """Return None: Pulsar counts batches, and those in our hands among them."""
        return None

    async def is_at_end(self) -> bool:
        """Tell whether all is acknowledged: whatever the broker counts, none of it is left then."""
        if self._arrivals or self._closed:
            return False
        return await self._access.backlog(self._name, [*self._topics]) == 0

    async def close(self) -> None:
        """Leave within a limit; the broker gives what is unfinished to others."""
        if self._closed:
            return
        self._closed = True
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_CLOSE_SECONDS)
        self._arrivals.drop([found.partition for found in self._held.values()])
        self._held.clear()
        leaving = self._thread.run(self._consumer.leave)
        await asyncio.wait([leaving], timeout=_CLOSE_SECONDS)
        self._thread.close()
        if self._access.owned and self._consumer.client is not None:
            await shut_down(self._consumer.client, _CLOSE_SECONDS)

    async def _read(self, most: int) -> None:
        try:
            consumer, found = await self._thread.run(self._consumer.receive, most)
            if not self._closed:
                self._arrivals.put([self._delivery(consumer, message) for message in found])
        except PulsarException as error:
            _log.warning("pulsar_receive_failed", extra={"reason": _reason(error)})
            await self._leave_for_a_moment()
        finally:
            self._reading = None

    async def _leave_for_a_moment(self) -> None:
        """Have the next `receive` join anew: the client has given up, or was not let in again.

        What was in our hands comes again.
        """
        await asyncio.sleep(_AGAIN_SECONDS)
        if not self._closed:
            await self._thread.run(self._consumer.leave)

    def _delivery(self, consumer: Any, message: Any) -> Delivery:
        self._came += 1
        partition = message.topic_name()
        address, mark, number = partition.rpartition(_PARTITION)
        topic = self._topics.get(address if mark and number.isdigit() else partition, partition)
        origin = Origin(consumer, message.message_id(), self._came)
        made = delivery_of(topic, partition, message, origin)
        self._held[self._came] = made
        return made


def _unheard(result: object) -> None:
    """Pass over how an acknowledgement went: what the broker does not know, it delivers again."""
    del result


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
