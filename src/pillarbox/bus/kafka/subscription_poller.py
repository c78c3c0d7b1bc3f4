"""Kafka's consumer in a thread of its own: its callbacks must be answered before they return.

No other thread may call the client: while one waits for messages, the call of another hangs.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pillarbox.bus.kafka.login import Login

_log = logging.getLogger("pillarbox.bus.kafka")

_T = TypeVar("_T")

Place = tuple[str, int]
Errand = Callable[[Any], object]
"""What the thread does with the consumer between two looks for messages."""

BATCH: Final = 500
_TURN: Final = 0.05
_PATIENCE: Final = 1.0  # so long a full house is waited for before partitions are paused
_LET_GO: Final = 120.0
_ANSWER_BY: Final = 5.0
_SECOND: Final = 1000
_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name, for want of another


class Listener(Protocol):
    """Whoever is told what the consumer hears; every method is called on the event loop."""

    def arrived(self, messages: Sequence[Message], ends: Mapping[Place, int]) -> None:
        """Take messages, in order within their partitions; hear where new partitions end."""
        ...

    def ended(self, ends: Mapping[Place, int]) -> None:
        """Hear that partitions have been read up to their ends of now."""
        ...

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        """Take partitions."""
        ...

    async def let_go(
        self, places: Sequence[TopicPartition], *, lost: bool
    ) -> Sequence[TopicPartition]:
        """Finish with partitions; return the positions to commit."""
        ...

    def committed(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """Hear what became of positions."""
        ...


class Poller:
    """Ask for messages until the end, also while nobody wants any: else the group drops a member.

    The event loop has all the state; the thread only carries things to and fro, and runs errands.
    While a partition is being let go the thread waits for the loop, so Kafka gives it to nobody.
    """

    def __init__(
        self, settings: Mapping[str, object], topics: Sequence[str], login: Login, to: Listener
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._to = to
        self._login = login
        self._stopping = threading.Event()
        self._room = threading.Event()
        self._room.set()
        self._errands: queue.SimpleQueue[Errand] = queue.SimpleQueue()
        self._unseen: set[Place] = set()
        self._halted: set[Place] = set()
        self._renew = False
        self._errors: set[str] = set()
        interval = float(str(settings.get("max.poll.interval.ms", 300 * _SECOND)))
        self._let_go_by = min(_LET_GO, interval / _SECOND / 2)
        self._topics = list(topics)
        self._consumer: Any = Consumer(
            {
                **settings,
                **login.settings(),
                "on_commit": self._on_commit,
                "error_cb": self._on_error,
            }
        )
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="pillarbox-kafka", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def want(self, more: bool) -> None:
        """Say whether there is room for more messages."""
        if more:
            self._room.set()
        else:
            self._room.clear()

    def run(self, errand: Errand) -> None:
        """Have something done with the consumer, soon."""
        self._errands.put(errand)

    def halt(self, places: Collection[Place]) -> None:
        """Ask for nothing of these partitions until they are let on; they stay ours."""

        def halt(consumer: Any) -> None:
            self._halted.update(places)
            consumer.pause([TopicPartition(*place) for place in places])

        self.run(halt)

    def let_on(self, places: Collection[Place]) -> None:
        """Ask again for messages of partitions that were halted."""

        def let_on(consumer: Any) -> None:
            self._halted.difference_update(places)
            consumer.resume([TopicPartition(*place) for place in places])

        self.run(let_on)

    def commit(self, positions: Sequence[TopicPartition]) -> None:
        """Commit positions; the listener hears what became of them."""

        def commit(consumer: Any) -> None:
            try:
                consumer.commit(offsets=list(positions), asynchronous=True)
            except KafkaException as error:
                self._on_commit(error.args[0], list(positions))

        self.run(commit)

    async def ask(self, errand: Callable[[Any], _T]) -> _T | None:
        """Have something found out; None if the client cannot, or not in time."""
        answer: asyncio.Future[_T | None] = self._loop.create_future()

        def find_out(consumer: Any) -> None:
            found = None
            try:
                found = errand(consumer)
            finally:
                self._tell(_settle, answer, found)

        self.run(find_out)
        await asyncio.wait([answer], timeout=_ANSWER_BY)
        return answer.result() if answer.done() else None

    async def stop(self, seconds: float) -> bool:
        """Leave the group; tell whether that was done in time."""
        self._stopping.set()
        self._room.set()
        await asyncio.wait([self._ended], timeout=seconds)
        return self._ended.done()

    def check(self) -> None:
        """Raise what has ended the thread: it never ends by itself, except with an error."""
        if self._ended.done():
            self._ended.result()

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self._consumer.subscribe(
                self._topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopping.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 - it is raised where messages are received
            failure = error
        try:
            self._consumer.close()
        finally:
            self._tell(self._end, failure)

    def _turn(self) -> None:
        try:
            if self._renew:
                self._renew = False
                self._login.renew(self._consumer)
            self._run_errands()
            if self._room.wait(_PATIENCE):
                self._hand_over(self._polled())
            else:
                self._hold_still()
        except KafkaException as error:
            self._complain(error.args[0])
            self._stopping.wait(_PATIENCE)

    def _run_errands(self) -> None:
        while not self._errands.empty():
            self._errands.get()(self._consumer)

    def _polled(self) -> list[Message]:
        first = self._consumer.poll(_TURN)
        if first is None:
            return []
        # The batch call waits until the batch is full; so it is only asked for what is there.
        return [first, *self._consumer.consume(BATCH - 1, 0)]

    def _hold_still(self) -> None:
        """Keep on asking with every partition paused, until there is room; the halted stay so.

        A message that comes meanwhile takes the room away that a stop has made.
        """
        while not (self._room.is_set() or self._stopping.is_set()):
            self._run_errands()
            self._consumer.pause(self._consumer.assignment())
            message = self._consumer.poll(_TURN)
            if message is not None:
                self._hand_over([message])
        self._consumer.resume(
            [p for p in self._consumer.assignment() if (p.topic, p.partition) not in self._halted]
        )

    def _hand_over(self, messages: Sequence[Message]) -> None:
        good, ends = [], {}
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() == _END:
                ends[str(message.topic()), int(message.partition() or 0)] = message.offset()
            else:
                self._complain(error)
        if good:
            self._room.clear()  # The listener says when it has taken these, and has room for more.
            self._tell(self._to.arrived, good, self._ends(good))
        if ends:
            self._tell(self._to.ended, ends)

    def _ends(self, messages: Sequence[Message]) -> dict[Place, int]:
        """Say where partitions end of which this is the first that comes, as their answer said."""
        if not self._unseen:
            return {}
        new = self._unseen.intersection((m.topic(), m.partition()) for m in messages)
        self._unseen -= new
        asked = {place: TopicPartition(*place) for place in new}
        return {
            place: self._consumer.get_watermark_offsets(asked[place], cached=True)[1]
            for place in new
        }

    def _on_assign(self, _: Any, places: list[TopicPartition]) -> None:
        new = {(place.topic, place.partition) for place in places}
        self._unseen |= new
        self._halted -= new  # the client asks for all that it is assigned anew
        self._tell(self._to.assigned, places)

    def _on_revoke(self, consumer: Any, places: list[TopicPartition]) -> None:
        positions = self._ask(self._to.let_go(places, lost=False))
        if not positions:
            return
        try:
            consumer.commit(offsets=list(positions), asynchronous=False)
        except KafkaException as error:
            self._complain(error.args[0])

    def _on_lost(self, _: Any, places: list[TopicPartition]) -> None:
        self._ask(self._to.let_go(places, lost=True))

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._tell(self._to.committed, error, places)

    def _on_error(self, error: KafkaError) -> None:
        self._renew = True  # not now: the client may not be called from within its own callback
        self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        if error.name() not in self._errors:
            self._errors.add(error.name())
            _log.warning("kafka_client_error", extra={"code": error.name(), "reason": error.str()})

    def _tell(self, call: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            self._stopping.set()  # The loop has ended: nobody is left to be told.

    def _ask(self, question: Coroutine[Any, Any, _T]) -> _T | None:
        try:
            answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:
            question.close()
            self._stopping.set()
            return None
        try:
            return answer.result(self._let_go_by)
        except TimeoutError:
            _log.error("kafka_partition_not_let_go", extra={"seconds": self._let_go_by})
            answer.cancel()
            return None

    def _end(self, failure: Exception | None) -> None:
        if failure is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(failure)


def _settle(answer: asyncio.Future[_T], found: _T) -> None:
    if not answer.done():
        answer.set_result(found)
